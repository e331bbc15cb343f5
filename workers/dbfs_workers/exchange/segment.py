"""The memory segment that the ranks of one host share: its layout, how ranks open it, and which ranks are alive.

The head has one part for each rank, ``stride`` int64 words apart:

| words | content | written by |
| --- | --- | --- |
| ``ARRIVED`` | tag of the last crossing at which this rank arrived | the rank |
| ``SLEEPERS`` | number of ranks that sleep until this rank arrives | the sleeping ranks |
| ``ABORT`` | in rank 0's part only: run number, cause and rank of the last abort | any rank, by compare-exchange |
| ``ATTACHED`` | 1 once this rank has opened the segment | the rank |
| ``MESSAGE`` | 256 bytes: why this rank aborted, zero-padded UTF-8 | the rank, before it aborts |
| ``RECORDS`` | two records by crossing parity: ``RUN`` (the run's digest), counts, ends of the bins | the rank |

A page-aligned body for each rank follows the head (uint32 words): ``rows[p][n_local]`` and ``parents[p][n_local]``, its
bins by owner, and ``slices[2][words_local]``, its slice of the frontier's bitmap by crossing parity.

A bin is filled once from front to back during a whole traversal, because a rank sends a remote vertex at most once
(Merrill 2012, section 6). So ``n_local`` entries are enough, and no entry is overwritten while a peer reads it. Pages
that are never written take no memory.

The memory is a nameless file (memfd), which peers open through ``/proc/<pid>/fd`` once its label has shown that it is
the right one (``dbfs_workers.tokens``). No name has to be unlinked: the kernel frees the memory when the last process
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

from dbfs_workers.errors import ExchangeUnavailableError
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tokens import Token, issue

# Words that different ranks write lie at least one cache line (8 words) apart.
ARRIVED = 0
SLEEPERS = 8
ABORT = 16
ATTACHED = 18
MESSAGE = 24
MESSAGE_BYTES = 256
RECORDS = MESSAGE + MESSAGE_BYTES // 8
RUN = 0

_FLOCK = "hhqqi"


@dataclass(frozen=True)
class SegmentHandle:
    """What a peer needs to open the segment. Picklable.

    Attributes:
        token: the token of the creator's file, which is the memory.
        stripe: the stripe of the graph, which determines the layout.
        record: words of a record.
    """

    token: Token
    stripe: Stripe
    record: int


def head_words(record: int) -> int:
    """Return the int64 words of one rank's part of the head, for records of ``record`` words."""
    return -(-(RECORDS + 2 * record) // 8) * 8


def body_words(stripe: Stripe) -> int:
    """Return the uint32 words of one rank's body, rounded up to whole pages."""
    return _pages(4 * (2 * stripe.p * stripe.n_local + 2 * stripe.words_local)) // 4


def resident_nbytes(stripe: Stripe, *, predecessors: bool) -> int:
    """Return the most bytes of one rank's body that become resident: all vertices of the peers binned, two slices."""
    bins = (stripe.p - 1) * stripe.n_local * 4 * (2 if predecessors else 1)
    return bins + 2 * stripe.words_local * 4


def nbytes(stripe: Stripe, record: int) -> int:
    """Return the size of the segment in bytes of address space; ``resident_nbytes`` is what a traversal uses of it."""
    return _pages(8 * stripe.p * head_words(record)) + 4 * stripe.p * body_words(stripe)


class Segment:
    """One rank's view of the segment.

    Attributes:
        rank: this rank.
        words: int64[p * stride], the head.
        stride: words of a rank's part of the head.
        handle: what peers attach with; valid while the creator has the segment open.
    """

    def __init__(self, descriptor: int, handle: SegmentHandle, rank: int) -> None:
        self.handle = handle
        self.rank = rank
        self.stride = head_words(handle.record)
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, nbytes(handle.stripe, handle.record))
        self.words: NDArray[np.int64] = np.frombuffer(self._memory, np.int64, self.stride * handle.stripe.p)

    @classmethod
    def create(cls, stripe: Stripe, record: int, graph_id: str) -> "Segment":
        """Make the segment of a graph's gang, as its rank 0.

        Raises:
            ExchangeUnavailableError: the system lacks memfd, open-file-description locks or futex.
        """
        # Imported here because it compiles kernels: a client that computes sizes needs none.
        from dbfs_workers.intrinsics import FUTEX

        if not (hasattr(fcntl, "F_OFD_SETLK") and FUTEX):
            raise ExchangeUnavailableError("shared memory between workers needs Linux (memfd, open-file locks, futex)")
        token = issue(graph_id)
        with _closing_on_error(token.descriptor) as descriptor:
            os.ftruncate(descriptor, nbytes(stripe, record))
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            segment = cls(descriptor, SegmentHandle(token, stripe, record), 0)
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
            if size != nbytes(handle.stripe, handle.record):
                expected = f"{nbytes(handle.stripe, handle.record)} bytes are expected"
                raise ExchangeUnavailableError(f"{failed}: it has {size} bytes, {expected}")
            segment = cls(descriptor, handle, rank)
        segment._join()
        return segment

    def rows(self, rank: int) -> NDArray[np.uint32]:
        """Return uint32[p * n_local], a rank's bins by owner."""
        return self._body(rank, 0, self.handle.stripe.p * self.handle.stripe.n_local)

    def parents(self, rank: int) -> NDArray[np.uint32]:
        """Return uint32[p * n_local], the parents of a rank's bins."""
        return self._body(rank, self.handle.stripe.p * self.handle.stripe.n_local, None)

    def slices(self, rank: int, parity: int) -> NDArray[np.uint32]:
        """Return uint32[words_local], a rank's slice of the frontier's bitmap for crossings of that parity."""
        stripe = self.handle.stripe
        return self._body(rank, 2 * stripe.p * stripe.n_local + parity * stripe.words_local, stripe.words_local)

    def write_message(self, text: str) -> None:
        """Write the reason of this rank's abort, cut to 255 bytes."""
        message = text.encode()[: MESSAGE_BYTES - 1]
        self._message(self.rank)[:] = np.frombuffer(message.ljust(MESSAGE_BYTES, b"\0"), np.int64)

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
        del self.words
        with contextlib.suppress(BufferError):
            self._memory.close()

    def _join(self) -> None:
        self._lock(fcntl.F_OFD_SETLK, self.rank)
        self.words[self.rank * self.stride + ATTACHED] = 1

    def _message(self, rank: int) -> NDArray[np.int64]:
        at = rank * self.stride + MESSAGE
        return self.words[at : at + MESSAGE_BYTES // 8]

    def _body(self, rank: int, offset: int, size: int | None) -> NDArray[np.uint32]:
        stripe = self.handle.stripe
        start = _pages(8 * stripe.p * self.stride) + 4 * (rank * body_words(stripe) + offset)
        return np.frombuffer(self._memory, np.uint32, stripe.p * stripe.n_local if size is None else size, start)

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
