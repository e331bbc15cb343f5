"""Adjacency lists in memory that other processes of the host can map, so that one rank can expand every rank's rows.

The memory is a nameless file (memfd) with the ``row_offsets`` of a CSR, and its ``columns`` after them. A peer finds
the file by its token (``base.tokens``), and maps it to read. The file's size is sealed, so that no process can
cut off pages that others have mapped.

Such memory has no huge pages on most systems. A graph of hubs, whose levels no rank leads, therefore keeps its rows in
ordinary memory (``LARGEST_DEGREE``).
"""

import ctypes
import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.base.tokens import Token, issue
from dbfs_workers.search.partition.partition import Csr, Partition, Rows
from dbfs_workers.search.partition.stripe import Stripe

LARGEST_DEGREE: Final = 256
"""Rows are shared if no row is longer. See ``levels.led_levels`` for the levels that a rank leads."""

KIND: Final = "rows"
"""What the tokens of such files are issued for, in place of a graph."""

# Bytes that are copied before the memory of the original is given back.
_STEP = 1 << 22
# Share of the memory still free in a process that the rows of all ranks may take there.
_MOST_OF_FREE = 1 / 4
_madvise = ctypes.CDLL(None, use_errno=True).madvise

# By address of the first array: the tokens of this process's files. A finaliser may run in a thread that has the lock.
_tokens: dict[int, Token] = {}
_lock = threading.RLock()


def share(partition: Partition) -> Partition:
    """Return a partition whose rows peers can map. The arrays of the one given are used up: their memory is given back.

    Return the partition itself if it has the only rank, or a row longer than ``LARGEST_DEGREE``, or if the system has
    no memfd.
    """
    csr = partition.out_edges
    if partition.stripe.p == 1 or np.diff(csr.row_offsets).max(initial=0) > LARGEST_DEGREE:
        return partition
    try:
        token = issue(KIND)
    except ExchangeUnavailableError:
        return partition
    os.ftruncate(token.descriptor, max(1, csr.nbytes))
    fcntl.fcntl(token.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    memory = mmap.mmap(token.descriptor, 0)
    row_offsets = np.frombuffer(memory, np.int64, csr.row_offsets.size)
    columns = np.frombuffer(memory, np.uint32, csr.columns.size, csr.row_offsets.nbytes)
    address = row_offsets.ctypes.data
    with _lock:
        _tokens[address] = token
    weakref.finalize(memory, _forget, address, token).atexit = False
    _move(csr.row_offsets, token.descriptor, 0)
    _move(csr.columns, token.descriptor, row_offsets.nbytes)
    return replace(partition, row_offsets=row_offsets, columns=columns)


def token_of(rows: Rows) -> Token | None:
    """Return the token of the file in which rows lie; None for rows that peers can't map."""
    token = _tokens.get(rows.starts.ctypes.data)
    together = rows.columns.ctypes.data == rows.starts.ctypes.data + rows.starts.nbytes + 8
    return token if token is not None and together else None


class HostRows:
    """The rows of all ranks of a host in one adjacency list by internal id, in this process's own memory.

    A copy, because shared memory has no huge pages on most systems: a rank that walks through the rows of all others
    would miss the processor's table of pages at nearly every vertex.
    """

    def __init__(self, stripe: Stripe) -> None:
        self._stripe = stripe
        # By rank, the labels of the files that were copied.
        self._labels: tuple[str, ...] = ()
        self._rows: Csr | None = None

    def copied(self, tokens: Sequence[Token], free_bytes: Callable[[], int]) -> tuple[Csr, bool]:
        """Return the rows of all ranks, and whether this call copied them: only the first one with these tokens does.

        Args:
            tokens: by rank, the token of the file with its rows.
            free_bytes: returns the bytes of memory that this process may still take.

        Raises:
            ExchangeUnavailableError: a file can't be opened, or is not one of this graph's rows; or a copy of all files
                takes more than a quarter of the free memory.
        """
        labels = tuple(token.label for token in tokens)
        if self._rows is not None and self._labels == labels:
            return self._rows, False
        self.close()
        parts = [_map(self._stripe, rank, token) for rank, token in enumerate(tokens)]
        size, most = sum(part.nbytes for part in parts), int(_MOST_OF_FREE * free_bytes())
        if size > most:
            raise ExchangeUnavailableError(
                f"the rows of all ranks can't be copied: they have {size:,} bytes, at most {max(0, most):,} may be"
            )
        n_local = self._stripe.n_local
        row_offsets = np.empty(self._stripe.p * n_local + 1, np.int64)
        columns = np.empty(sum(part.columns.size for part in parts), np.uint32)
        end = 0
        for rank in range(self._stripe.p):
            # Pages that were read count as memory of this process until the file is unmapped.
            part = parts.pop(0)
            first = rank * n_local
            np.add(part.row_offsets[:-1], end, out=row_offsets[first : first + n_local])
            columns[end : end + part.columns.size] = part.columns
            end += part.columns.size
        row_offsets[-1] = end
        self._labels, self._rows = labels, Csr(row_offsets, columns)
        return self._rows, True

    def close(self) -> None:
        """Release the memory."""
        self._labels, self._rows = (), None


def _map(stripe: Stripe, rank: int, token: Token) -> Csr:
    """Return the rows of a rank, mapped to read. Errors as of ``HostRows.copied``."""
    failed = f"the rows of rank {rank} can't be mapped"
    descriptor = token.open(KIND, failed)
    try:
        size = os.fstat(descriptor).st_size
        offsets = stripe.n_local + 1
        if size < 8 * offsets:
            raise ExchangeUnavailableError(f"{failed}: {size:,} bytes do not hold {offsets:,} row offsets")
        memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    row_offsets = np.frombuffer(memory, np.int64, offsets)
    if size != 8 * offsets + 4 * row_offsets[-1]:
        raise ExchangeUnavailableError(f"{failed}: {size:,} bytes do not hold {row_offsets[-1]:,} columns")
    return Csr(row_offsets, np.frombuffer(memory, np.uint32, offset=8 * offsets))


def _move(source: NDArray[np.int64] | NDArray[np.uint32], file: int, offset: int) -> None:
    """Write an array to a file, and give the whole pages of its memory back to the system as they are written.

    Copied by the system, the file's pages take half the time: they are neither filled with zeros nor faulted in before.
    """
    content = source.view(np.uint8).data
    first = -(-source.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    done = 0
    while done < source.nbytes:
        done += os.pwrite(file, content[done : done + _STEP], offset + done)
        end = (source.ctypes.data + done) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > first:
            # Of a mapped file, this gives back the pages and not the content.
            _madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)
            first = end


def _forget(address: int, token: Token) -> None:
    with _lock:
        # The memory is given back before this call: the address may be that of other rows already.
        if _tokens.get(address) is token:
            del _tokens[address]
    os.close(token.descriptor)
