"""The memory that the ranks of one host share, where everything lies in it, and who is still alive.

Layout (int64 words of the head; every rank's part of it starts ``stride`` words after the one before):

| words | what | written by |
| --- | --- | --- |
| ``ARRIVED`` | tag of the last crossing this rank arrived at | the rank |
| ``SLEEPERS`` | how many ranks sleep until this one arrives | they |
| ``ABORT`` | of rank 0's part only: run number, cause and rank of the last abort | anyone, by compare-exchange |
| ``ATTACHED`` | 1 once this rank has opened the segment | the rank |
| ``MESSAGE`` | 256 bytes: why this rank aborted, zero-padded UTF-8 | the rank, before it aborts |
| ``RECORDS`` | two records by crossing parity: ``RUN`` (the run's digest), counts, ends of the bins | the rank |

A page-aligned body for each rank follows (uint32 words): ``rows[p][n_local]`` and ``parents[p][n_local]``, its bins by
owner, and ``slices[2][words_local]``, its slice of the frontier's bitmap by crossing parity.

A bin is filled once from front to back during a whole traversal: a rank sends a remote vertex at most once (Merrill
2012, section 6), so ``n_local`` places are enough and nothing is ever overwritten while a peer reads it. Only what is
written takes memory.

The memory is a nameless file (memfd) that peers open through ``/proc/<pid>/fd``. So nothing has to be unlinked: the
kernel frees it with the last process that has it, however that ends, and ``/dev/shm``'s size (64 MiB in a container)
is no bound. Each rank holds an open-file-description lock on one byte of the file; the kernel drops it when the
process ends, which is how peers tell a dead rank from a slow one, across PID reuse and unreaped children.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import ExchangeUnavailableError
from dbfs_workers.storage.stripe import Stripe

# Words that different ranks write lie at least one cache line (8 words) apart.
ARRIVED = 0
SLEEPERS = 8
ABORT = 16
ATTACHED = 18
MESSAGE = 24
MESSAGE_BYTES = 256
RECORDS = MESSAGE + MESSAGE_BYTES // 8
RUN = 0

_TOKEN = 17  # of rank 0's part: a random number that shows a peer it opened the right file
_FLOCK = "hhqqi"


@dataclass(frozen=True)
class SegmentHandle:
    """What a peer needs to open the segment: the creator's process and descriptor, and the token expected in it."""

    pid: int
    descriptor: int
    token: int
    stripe: Stripe
    record: int


def head_words(record: int) -> int:
    """Words of one rank's part of the head; a record has ``record`` words."""
    return -(-(RECORDS + 2 * record) // 8) * 8


def body_words(stripe: Stripe) -> int:
    """uint32 words of one rank's body, whole pages."""
    return _pages(4 * (2 * stripe.p * stripe.n_local + 2 * stripe.words_local)) // 4


def touched(stripe: Stripe, *, predecessors: bool) -> int:
    """The most memory that traversals make one rank's body take: every vertex of the others binned, and two slices."""
    bins = (stripe.p - 1) * stripe.n_local * 4 * (2 if predecessors else 1)
    return bins + 2 * stripe.words_local * 4


def nbytes(stripe: Stripe, record: int) -> int:
    """Size of the segment: addresses, of which traversals touch only ``touched`` a rank."""
    return _pages(8 * stripe.p * head_words(record)) + 4 * stripe.p * body_words(stripe)


class Segment:
    """One rank's view of the segment.

    Attributes:
        words: int64, the head.
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
    def create(cls, stripe: Stripe, record: int) -> "Segment":
        """Make the segment of a gang, as its rank 0.

        Raises:
            ExchangeUnavailableError: this system has no such memory.
        """
        # Imported here because it compiles kernels: a client that asks for sizes needs none.
        from dbfs_workers.intrinsics import FUTEX

        if not (hasattr(os, "memfd_create") and hasattr(fcntl, "F_OFD_SETLK") and FUTEX):
            raise ExchangeUnavailableError("shared memory between workers needs Linux (memfd, open-file locks, futex)")
        token = secrets.randbits(62) + 1
        with _closing_on_error(os.memfd_create("dbfs")) as descriptor:
            os.ftruncate(descriptor, nbytes(stripe, record))
            segment = cls(descriptor, SegmentHandle(os.getpid(), descriptor, token, stripe, record), 0)
        segment.words[_TOKEN] = token
        segment._join()
        return segment

    @classmethod
    def attach(cls, handle: SegmentHandle, rank: int) -> "Segment":
        """Open a segment as another rank.

        Raises:
            ExchangeUnavailableError: the creator is on another host, in another container, of another user, or gone.
        """
        path = f"/proc/{handle.pid}/fd/{handle.descriptor}"
        there = f"rank {rank} can't open the shared memory of process {handle.pid}"
        try:
            opened = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise ExchangeUnavailableError(f"{there}: {error}") from error
        with _closing_on_error(opened) as descriptor:
            # Another process may have that id here: its file must not be mapped, and is not if its size is another.
            if os.fstat(descriptor).st_size != nbytes(handle.stripe, handle.record):
                raise ExchangeUnavailableError(f"{there}: another file is there")
            segment = cls(descriptor, handle, rank)
        if segment.words[_TOKEN] != handle.token:
            segment.close()
            raise ExchangeUnavailableError(f"{there}: another file is there")
        segment._join()
        return segment

    def rows(self, rank: int) -> NDArray[np.uint32]:
        """uint32[p * n_local]: a rank's bins by owner."""
        return self._body(rank, 0, self.handle.stripe.p * self.handle.stripe.n_local)

    def parents(self, rank: int) -> NDArray[np.uint32]:
        """uint32[p * n_local]: the parents of ``rows``."""
        return self._body(rank, self.handle.stripe.p * self.handle.stripe.n_local, None)

    def slices(self, rank: int, parity: int) -> NDArray[np.uint32]:
        """uint32[words_local]: a rank's slice of the frontier's bitmap."""
        stripe = self.handle.stripe
        return self._body(rank, 2 * stripe.p * stripe.n_local + parity * stripe.words_local, stripe.words_local)

    def write_message(self, text: str) -> None:
        """Leave the reason of an abort."""
        message = text.encode()[: MESSAGE_BYTES - 1]
        self._message(self.rank)[:] = np.frombuffer(message.ljust(MESSAGE_BYTES, b"\0"), np.int64)

    def read_message(self, rank: int) -> str:
        """The reason a rank left."""
        return self._message(rank).tobytes().rstrip(b"\0").decode(errors="ignore")

    def dead(self) -> list[int]:
        """Ranks whose process has ended or that have closed the segment; not one that has yet to attach."""
        return [
            rank
            for rank in range(self.handle.stripe.p)
            if rank != self.rank
            and self.words[rank * self.stride + ATTACHED]
            and self._lock(fcntl.F_OFD_GETLK, rank) == fcntl.F_UNLCK
        ]

    def close(self) -> None:
        """Let go of the memory. Arrays that still refer to it keep it until they are gone."""
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
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, rank, 1, 0)
        kind: int = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, command, asked))[0]
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
