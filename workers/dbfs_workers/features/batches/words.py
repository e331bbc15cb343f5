"""The words of a batch's vertices on their way between ranks: packed into bins, or read from the peers' GPU memory.

Top-down, a rank sends the words that it found for other ranks' vertices to the owners. Bottom-up, it sends the words of
its part of the frontier to all others. A rank that has all rows sends nothing.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.batches.operators import BatchOperators
from dbfs_workers.features.batches.storage import BatchScratch
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.state import State
from dbfs_workers.search.levels.stepper import elapsed
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.crossings import Nothing, Sum

_PHASE = "words of a batch"


class BatchWords(Protocol):
    """The way of words from rank to rank."""

    def send(self, state: State, row: Row, *, everywhere: bool) -> None:
        """Send words, and add those of the peers to the rank's own.

        Args:
            row: the level's row; updated.
            everywhere: whether the words of the rank's part of the frontier go to all ranks; else those of the found
                vertices of other ranks go to their owners.
        """

    def swap(self, level: int, parts: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """Send each rank an array, and return what all ranks have sent here, by rank.

        Args:
            level: the level, named in errors.
            parts: by rank, the contiguous array for it.
            like: by rank, an array of the shape and the type of the one from there.

        Errors as for ``Exchange.cross``.
        """

    def add_up(self, level: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of all ranks' counts. Errors as for ``swap``."""

    def close(self) -> None:
        """Free the words of the scratch, on all ranks together. Errors as for ``Exchange.cross``."""


class OwnWords:
    """The words of a rank that has all rows: see ``BatchWords``."""

    def __init__(self, scratch: BatchScratch) -> None:
        self._scratch = scratch

    def send(self, state: State, row: Row, *, everywhere: bool) -> None:
        """Send nothing."""

    def swap(self, level: int, parts: Sequence[Any], like: Sequence[Any]) -> list[Any]:  # noqa: ARG002
        """Return the only part."""
        return [*parts]

    def add_up(self, level: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002
        """Return the counts."""
        return counts

    def close(self) -> None:
        self._scratch.release()


class PackedWords:
    """Words that travel in the bins of an exchange, in as many rounds as they need: see ``BatchWords``.

    Words travel as runs of consecutive vertices: see ``BatchOperators.pack``.
    """

    def __init__(self, scratch: BatchScratch, operators: BatchOperators, exchange: Exchange) -> None:
        self._scratch, self._operators, self._exchange = scratch, operators, exchange

    def send(self, state: State, row: Row, *, everywhere: bool) -> None:
        scratch, exchange, operators = self._scratch, self._exchange, self._operators
        width, stripe = scratch.width, scratch.partition.stripe
        bits, words = (scratch.live, scratch.front) if everywhere else (scratch.marked, scratch.found)
        p, rank, n_local = stripe.p, exchange.rank, stripe.n_local
        peers = _peers(exchange)
        following = {peer: (rank if everywhere else peer) * n_local for peer in peers}
        ends = {peer: vertex + n_local for peer, vertex in following.items()}
        unfinished = True
        while unfinished:
            self._empty_bins(state.level)
            entries = exchange.bin_rows.size // p
            for peer in peers:
                of_peer = slice(peer * entries, (peer + 1) * entries)
                following[peer], end = operators.pack(
                    width,
                    following[peer],
                    ends[peer],
                    bits,
                    words,
                    exchange.bin_rows[of_peer],
                    exchange.bin_parents[of_peer],
                )
                exchange.bin_ends[peer] = end
                row.bytes_sent += 8 * end
            left = sum(ends.values()) - sum(following.values())
            row.contract += elapsed(state)
            unfinished = exchange.cross(state.level, _PHASE, Sum(left), sliced=False).total > 0
            row.exchange += elapsed(state)
            for rows, parents in exchange.incoming():
                assert parents is not None
                operators.unpack(width, rows, parents, bits, words)

    def swap(self, level: int, parts: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        exchange, rank, xp = self._exchange, self._exchange.rank, self._scratch.xp
        entries = exchange.bin_rows.size // exchange.p
        sent, received = [_halves(xp, part) for part in parts], [_halves(xp, xp.empty_like(part)) for part in like]
        sent[rank] = received[rank] = sent[rank][:0]
        begin, unfinished = 0, True
        while unfinished:
            self._empty_bins(level)
            for peer, halves in enumerate(sent):
                some = halves[2 * begin : 2 * (begin + entries)]
                place = slice(peer * entries, peer * entries + some.size // 2)
                exchange.bin_rows[place], exchange.bin_parents[place] = xp.split(some, 2)
                exchange.bin_ends[peer] = some.size // 2
            left = max(0, *(halves.size // 2 - begin - entries for halves in sent))
            unfinished = exchange.cross(level, _PHASE, Sum(left), sliced=False).total > 0
            senders = [halves for halves in received if halves.size > 2 * begin]
            for halves, (low, high) in zip(senders, exchange.incoming(), strict=True):
                assert high is not None
                some = halves[2 * begin : 2 * (begin + entries)]
                some[: low.size], some[low.size :] = low, high
            begin += entries
        found = [*parts]
        for peer in _peers(exchange):
            bytes_found = received[peer].view(np.uint8)[: like[peer].nbytes]
            found[peer] = bytes_found.view(like[peer].dtype).reshape(like[peer].shape)
        return found

    def add_up(self, level: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        parts = [self._scratch.xp.asarray(counts)] * self._exchange.p
        total: NDArray[np.int64] = on_host(sum(self.swap(level, parts, parts)))
        return total

    def close(self) -> None:
        self._scratch.release()

    def _empty_bins(self, level: int) -> None:
        """Empty the bins of a GPU, which keep their entries until then."""
        if self._scratch.xp is not np:
            self._exchange.reset(True)
            self._exchange.cross(level, _PHASE, Nothing(), sliced=False)


class MappedMemory:
    """Arrays of a batch on a GPU that the peers of one host map, and what this rank has mapped of theirs.

    All ranks allocate, map, unmap and free together.
    """

    def __init__(self) -> None:
        self._own: list[Any] = []
        # By peer, in the order of its allocations.
        self._opened: dict[int, list[int]] = {}

    def zeros(self, size: int, dtype: Any) -> Any:
        """See ``storage.Zeros``. The array stays until ``free``."""
        array = device_memory.own_allocation(size, dtype)
        array.fill(0)
        self._own.append(array)
        return array

    def connect(self, exchange: Exchange, level: int) -> None:
        """Map the arrays of all peers. Errors as for ``Exchange.cross`` and ``device_memory.open_handle``."""
        offer = np.frombuffer(b"".join(map(device_memory.export_allocation, self._own)), np.uint32)
        entries, peers = exchange.bin_rows.size // exchange.p, _peers(exchange)
        for peer in peers:
            exchange.bin_rows[peer * entries : peer * entries + offer.size] = offer
            exchange.bin_ends[peer] = offer.size
        exchange.cross(level, "memory of a batch", Nothing(), sliced=False)
        for peer, (offered, _) in zip(peers, exchange.incoming(), strict=True):
            what = f"rank {exchange.rank} can't map the GPU memory of rank {peer}"
            handles = offered.reshape(len(self._own), -1)
            self._opened[peer] = [device_memory.open_handle(handle.tobytes(), what) for handle in handles]

    @property
    def connected(self) -> bool:
        """Whether the peers' arrays are mapped."""
        return bool(self._opened)

    def of_peer(self, peer: int, place: int) -> Any:
        """Return the array that a peer allocated as its ``place``-th, from 0 on."""
        own = self._own[place]
        return device_memory.array_at(self.address(peer, place), own.size, own.dtype, self)

    def address(self, rank: int, place: int) -> int:
        """Return where this rank reaches that array of a rank, which may be its own."""
        return self._opened[rank][place] if rank in self._opened else device_memory.address(self._own[place])

    def unmap(self) -> None:
        """Unmap the peers' arrays."""
        while self._opened:
            for address in self._opened.popitem()[1]:
                device_memory.close_handle(address)

    def free(self) -> None:
        """Free the rank's arrays, which no peer may have mapped any more."""
        self._own = []


class MappedWords:
    """Words that a rank reads from the peers' GPU memory: see ``BatchWords``.

    The sender changes them after the next crossing at the earliest.
    """

    def __init__(self, scratch: BatchScratch, operators: Any, exchange: Exchange, memory: MappedMemory) -> None:
        self._scratch, self._operators, self._exchange, self._memory = scratch, operators, exchange, memory

    def send(self, state: State, row: Row, *, everywhere: bool) -> None:
        scratch, exchange, width = self._scratch, self._exchange, self._scratch.width
        stripe, stream = scratch.partition.stripe, scratch.xp.cuda.get_current_stream()
        if not self._memory.connected:
            self._memory.connect(exchange, state.level)
        stream.synchronize()
        row.contract += elapsed(state)
        exchange.cross(state.level, _PHASE, Nothing(), sliced=False)
        row.exchange += elapsed(state)
        # The arrays were allocated as ``live``, ``marked``, ``front`` and ``found``.
        pair = int(scratch.turned == everywhere)
        bits, words = (scratch.live, scratch.front) if everywhere else (scratch.marked, scratch.found)
        for peer in _peers(exchange):
            owner = peer if everywhere else exchange.rank
            of_bits = np.s_[owner * stripe.words_local : (owner + 1) * stripe.words_local]
            of_words = np.s_[owner * stripe.n_local * width : (owner + 1) * stripe.n_local * width]
            there = self._memory.of_peer(peer, pair)[of_bits], self._memory.of_peer(peer, 2 + pair)[of_words]
            self._operators.take(width, there, bits[of_bits], words[of_words])
            row.bytes_sent += there[0].nbytes

    def swap(self, level: int, parts: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        exchange, xp, peers = self._exchange, self._scratch.xp, _peers(self._exchange)
        found = [*parts]
        for peer in peers:
            offer = device_memory.export_array(parts[peer])
            words = np.frombuffer(offer.handle + offer.offset.to_bytes(8, "little"), np.uint32)
            first = peer * exchange.bin_rows.size // exchange.p
            exchange.bin_rows[first : first + words.size] = words
            exchange.bin_ends[peer] = words.size
        xp.cuda.get_current_stream().synchronize()
        exchange.cross(level, _PHASE, Nothing(), sliced=False)
        for peer, (offered, _) in zip(peers, exchange.incoming(), strict=True):
            handle, offset = offered[:-2].tobytes(), int.from_bytes(offered[-2:].tobytes(), "little")
            found[peer] = xp.empty_like(like[peer])
            if handle:
                with device_memory.mapped(handle) as address:
                    device_memory.copy_from(address + offset, found[peer])
        exchange.cross(level, _PHASE, Nothing(), sliced=False)
        return found

    def add_up(self, level: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        exchange, entries = self._exchange, self._exchange.bin_rows.size // self._exchange.p
        halves = counts.view(np.uint32)
        for peer in _peers(exchange):
            exchange.bin_rows[peer * entries : peer * entries + halves.size] = halves
            exchange.bin_ends[peer] = halves.size
        exchange.cross(level, _PHASE, Nothing(), sliced=False)
        return counts + sum(offered.copy().view(np.int64) for offered, _ in exchange.incoming())

    def close(self) -> None:
        self._scratch.release()
        self._memory.unmap()
        self._exchange.cross(0, "memory of a batch", Nothing(), sliced=False)
        self._memory.free()


def _halves(xp: Any, array: Any) -> Any:
    """Return the bytes of a contiguous array as halves of whole words of 64 bits: uint32."""
    if array.nbytes % 8 == 0:
        return array.reshape(-1).view(np.uint32)
    padded = xp.zeros(-(-array.nbytes // 8) * 8, np.uint8)
    padded[: array.nbytes] = array.reshape(-1).view(np.uint8)
    return padded.view(np.uint32)


def _peers(exchange: Exchange) -> list[int]:
    return [peer for peer in range(exchange.p) if peer != exchange.rank]
