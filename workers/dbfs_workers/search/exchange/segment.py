"""The memory segment that the ranks of one host share: its layout, how ranks open it, and which ranks are alive.

The head has one part for each rank, ``stride`` int64 words apart:

| words | content | written by |
| --- | --- | --- |
| ``ARRIVED`` | tag of the last crossing at which this rank arrived | the rank |
| ``SLEEPERS`` | number of ranks that sleep until this rank arrives | the sleeping ranks |
| ``ABORT`` | in rank 0's part only: run number, cause and rank of the last abort | any rank, by compare-exchange |
| ``ATTACHED`` | 1 once this rank has opened the segment | the rank |
| ``ROWS`` | token of the file with this rank's rows (``Token.words``); zeros if they can't map the rows | the rank |
| ``MESSAGE`` | 256 bytes: why this rank aborted, zero-padded UTF-8 | the rank that aborts, before ``ABORT`` |
| ``RECORDS`` | two records by crossing parity: ``RUN`` (the run's digest), counts, ends of the bins | the rank |

The parts of ranks on other hosts are written by the envoy, the lowest rank of this host (``across_hosts``).

A page-aligned body for each rank follows the head (uint32 words), by crossing parity: ``rows[2][p][entries]`` and
``parents[2][p][entries]``, its bins by owner, and ``slices[2][words_local]``, its slice of the frontier's bitmap.

A rank fills the bins of one parity while its peers read the bins of the other parity, which the rank filled before the
last crossing. At the next crossing its peers have read them. So a bin is emptied at every second crossing, and
``entries`` is a choice: a rank whose bin is full crosses and goes on with its level (``bin_entries``). Pages that are
never written take no memory.

The memory is a nameless file (memfd), which peers open through ``/proc/<pid>/fd`` once its label has shown that it is
the right one (``dbfs_workers.base.tokens``). No name has to be unlinked: the kernel frees the memory when the last process
with it ends, however it ends. The size of ``/dev/shm`` (64 MiB in a container) is no limit. The file's size is sealed,
so that no process can cut off pages that others have mapped. Each rank holds an open-file-description lock on one byte
of the file. The kernel drops that lock when the process ends. So peers can distinguish a dead rank from a slow one,
despite PID reuse and zombies.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.base.tokens import TOKEN_WORDS, Token, issue
from dbfs_workers.search.partition.stripe import Stripe

# Words that different ranks write lie at least one cache line (8 words) apart.
ARRIVED = 0
SLEEPERS = 8
ABORT = 16
ATTACHED = 18
ROWS = 19
MESSAGE = 24
MESSAGE_BYTES = 256
RECORDS = MESSAGE + MESSAGE_BYTES // 8
# In a record: the run's digest and the counts have a cache line, the ends of the bins begin in the next one. So a peer
# reads two lines of a record, however many ranks there are.
RUN = 0
ENDS = 8

# A bin of this many entries takes microseconds to fill, so one more crossing for each costs little. On one host with 64
# ranks such bins take 2 MiB a rank.
_LEAST_ENTRIES = 1024

_FLOCK = "hhqqi"


@dataclass(frozen=True)
class SegmentHandle:
    """The handle by which a peer opens the segment. Picklable.

    Attributes:
        token: the token of the creator's file, which is the memory.
        stripe: the stripe of the graph.
        entries: entries of a bin.
    """

    token: Token
    stripe: Stripe
    entries: int


def bin_entries(stripe: Stripe) -> int:
    """Return the entries of a bin such that all bins of a rank together take O(n / p) bytes.

    The bins of both parities hold as many entries as a rank has rows. A level that bins every vertex of a peer fills
    that peer's bin 2 p times.
    """
    return min(stripe.n_local, max(_LEAST_ENTRIES, -(-stripe.n_local // (2 * stripe.p))))


def record_words(p: int) -> int:
    """Return the int64 words of a record, whole cache lines."""
    return ENDS + -(-p // 8) * 8


def head_words(p: int) -> int:
    """Return the int64 words of one rank's part of the head."""
    return RECORDS + 2 * record_words(p)


def body_words(stripe: Stripe, entries: int) -> int:
    """Return the uint32 words of one rank's body, rounded up to whole pages."""
    return _pages(4 * (4 * stripe.p * entries + 2 * stripe.words_local)) // 4


def resident_nbytes(stripe: Stripe, *, predecessors: bool) -> int:
    """Return the most bytes of one rank's body that become resident: the bins, which also hold its log, and two slices.

    A single rank has neither bins nor a log.
    """
    owners = stripe.p if stripe.p > 1 else 0
    bins = 2 * owners * bin_entries(stripe) * 4 * (2 if predecessors else 1)
    return bins + 2 * stripe.words_local * 4


def remote_nbytes(stripe: Stripe, own: int, *, predecessors: bool) -> int:
    """Return the most bytes of a host's segment that become resident for ranks of other hosts.

    ``own`` is the number of ranks on the host. These bytes are the bins for these ranks, and the slices, of the ranks
    of other hosts.
    """
    bins = 2 * own * bin_entries(stripe) * 4 * (2 if predecessors else 1)
    return (stripe.p - own) * (bins + 2 * stripe.words_local * 4)


def nbytes(stripe: Stripe, entries: int) -> int:
    """Return the size of the segment in bytes of address space; a traversal uses ``resident_nbytes`` of them."""
    return _pages(8 * stripe.p * head_words(stripe.p)) + 4 * stripe.p * body_words(stripe, entries)


class Segment:
    """One rank's view of the segment.

    Attributes:
        rank: this rank.
        words: int64[p * stride], the head.
        stride: words of a rank's part of the head.
        bodies: uint32[p * body_words], the bodies by rank.
        body_words: words of a rank's body.
        log_words: words of the rows of a rank's log.
        handle: what peers attach with; valid while the creator has the segment open.
    """

    def __init__(self, descriptor: int, handle: SegmentHandle, rank: int) -> None:
        self.handle = handle
        self.rank = rank
        stripe = handle.stripe
        self.stride = head_words(stripe.p)
        self.body_words = body_words(stripe, handle.entries)
        self.log_words = 2 * stripe.p * handle.entries
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, nbytes(stripe, handle.entries))
        self.words: NDArray[np.int64] = np.frombuffer(self._memory, np.int64, self.stride * stripe.p)
        self.bodies: NDArray[np.uint32] = np.frombuffer(self._memory, np.uint32, offset=_pages(self.words.nbytes))

    @classmethod
    def create(cls, stripe: Stripe, entries: int, graph_id: str, rank: int = 0) -> "Segment":
        """Make the segment of a graph's gang, as the lowest rank of its host, with bins of ``entries`` entries.

        Raises:
            ExchangeUnavailableError: the system lacks memfd, open-file-description locks or futex.
        """
        # Imported here because it compiles kernels: a client that computes sizes needs none.
        from dbfs_workers.base.intrinsics import FUTEX

        if not (hasattr(fcntl, "F_OFD_SETLK") and FUTEX):
            raise ExchangeUnavailableError("shared memory between workers needs Linux (memfd, open-file locks, futex)")
        token = issue(graph_id)
        with _closing_on_error(token.descriptor) as descriptor:
            os.ftruncate(descriptor, nbytes(stripe, entries))
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            segment = cls(descriptor, SegmentHandle(token, stripe, entries), rank)
        segment._join()
        return segment

    @classmethod
    def attach(cls, handle: SegmentHandle, rank: int, graph_id: str) -> "Segment":
        """Open the segment of a graph's gang as another rank.

        Raises:
            ExchangeUnavailableError: this process can't open the creator's memory. The creator is on another host, in
                another container, runs as another user, or has ended; or the memory is of another graph.
        """
        token = handle.token
        failed = f"rank {rank} can't open the shared memory of process {token.pid}"
        with _closing_on_error(token.open(graph_id, failed)) as descriptor:
            size = os.fstat(descriptor).st_size
            if size != nbytes(handle.stripe, handle.entries):
                expected = f"{nbytes(handle.stripe, handle.entries)} bytes are expected"
                raise ExchangeUnavailableError(f"{failed}: it has {size} bytes, {expected}")
            segment = cls(descriptor, handle, rank)
        segment._join()
        return segment

    def rows(self, rank: int, parity: int) -> NDArray[np.uint32]:
        """Return uint32[p * entries], a rank's bins by owner for crossings of that parity."""
        size = self.handle.stripe.p * self.handle.entries
        return self._body(rank, parity * size, size)

    def parents(self, rank: int, parity: int) -> NDArray[np.uint32]:
        """Return uint32[p * entries], the parents of a rank's bins for crossings of that parity."""
        size = self.handle.stripe.p * self.handle.entries
        return self._body(rank, (2 + parity) * size, size)

    def slices(self, rank: int, parity: int) -> NDArray[np.uint32]:
        """Return uint32[words_local], a rank's slice of the frontier's bitmap for crossings of that parity."""
        stripe = self.handle.stripe
        return self._body(rank, 4 * stripe.p * self.handle.entries + parity * stripe.words_local, stripe.words_local)

    def log(self, rank: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return a rank's log in place of its bins of both parities: rows and parents, uint32[log_words] each."""
        return self._body(rank, 0, self.log_words), self._body(rank, self.log_words, self.log_words)

    def write_rows(self, token: Token | None) -> None:
        """Write where peers find the file with this rank's rows; None if they can't map the rows."""
        at = self.rank * self.stride + ROWS
        self.words[at : at + TOKEN_WORDS] = 0 if token is None else token.words()

    def read_rows(self, rank: int, kind: str) -> Token | None:
        """Return the token of the file with a rank's rows, which has a token of ``kind``; None if there is none."""
        at = rank * self.stride + ROWS
        return Token.of_words(self.words[at : at + TOKEN_WORDS], kind)

    def write_message(self, text: str, rank: int) -> None:
        """Write the reason of an abort by a rank, cut to 255 bytes."""
        message = text.encode()[: MESSAGE_BYTES - 1]
        self._message(rank)[:] = np.frombuffer(message.ljust(MESSAGE_BYTES, b"\0"), np.int64)

    def read_message(self, rank: int) -> str:
        """Return the reason of a rank's abort."""
        return self._message(rank).tobytes().rstrip(b"\0").decode(errors="ignore")

    def dead_ranks(self) -> list[int]:
        """Return the peers that attached and whose process has ended or closed the segment since."""
        return [
            rank
            for rank in range(self.handle.stripe.p)
            if rank != self.rank
            and self.words[rank * self.stride + ATTACHED]
            and self._lock(fcntl.F_OFD_GETLK, rank) == fcntl.F_UNLCK
        ]

    def close(self) -> None:
        """Release the memory. If arrays still refer to the memory, the last of them releases it."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        del self.words, self.bodies
        with contextlib.suppress(BufferError):
            self._memory.close()

    def _join(self) -> None:
        self._lock(fcntl.F_OFD_SETLK, self.rank)
        self.words[self.rank * self.stride + ATTACHED] = 1

    def _message(self, rank: int) -> NDArray[np.int64]:
        at = rank * self.stride + MESSAGE
        return self.words[at : at + MESSAGE_BYTES // 8]

    def _body(self, rank: int, offset: int, size: int) -> NDArray[np.uint32]:
        start = rank * self.body_words + offset
        return self.bodies[start : start + size]

    def _lock(self, command: int, rank: int) -> int:
        request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, rank, 1, 0)
        kind: int = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, command, request))[0]
        return kind


@contextlib.contextmanager
def _closing_on_error(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
