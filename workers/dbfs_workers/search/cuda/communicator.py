"""The interfaces to NCCL and to a GPU through which ``exchange.nccl`` works: ``nccl`` implements the first two, and
``messages`` the third.

Transfers are given by addresses, because an exchange makes thousands of small ones a second. Importing this module
needs no CuPy.

A message from one rank to another has a header of ``HEADER`` words of 8 bytes, ``INLINE`` rows and ``INLINE`` parents
of 4 bytes. Rows and parents past the bin's size are undefined.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.reports.crossings import COUNTS, Found, place

INLINE: Final = 1024
"""Entries of a bin that go with the header. NCCL takes 18 us for 128 bytes over NVLink, and 19 for 16 KB."""

# Words of a header; ``words.py`` has them for kernels. The counts are those of a record of ``reports.crossings``. Of a
# level they are the vertices and edges of ``Found`` and, in the place of ``unfinished``, LARGE: 1 if any bin of the
# sender is too large for its message. START is the first place of the entries in the sender's bins.
NUMBER, CROSSING, RUN, SIZE, FIRST_COUNT = range(5)
LARGE: Final = FIRST_COUNT + place(Found, "unfinished")
START: Final = FIRST_COUNT + COUNTS
HEADER: Final = 16

# Words of a level's result: the rank's own discoveries, all its vertices that are queued, the edges that it expanded;
# over all ranks, the vertices found and the edges expanded; the entries that came; the state; then the ends of the
# bins, the new entries of each, and the entries of the bin that came from each rank. The words of the rank's own bin
# are undefined.
OWN, QUEUED, EDGES, FOUND, EXPANDED, RECEIVED, STATE, FIRST_END = range(8)
# Bits of the state: a bin of any rank is too large for its message; a message is of another crossing; the level was not
# run, since one before it halted the queue.
LARGE_BINS, OTHER_CROSSING, HALTED = 1, 2, 4

MOST_AHEAD: Final = 16
"""Levels that may be queued before the host waits. The wait costs a level's time; the levels behind the last one of a
traversal, which have empty messages, cost some as well."""

Tag = tuple[int, int, int]
"""Of a crossing: the gang's serial number of the run, the number of the crossing in it, and the run's digest."""

Transfer = tuple[int, int, int, int, int]
"""Peer; address and bytes of what is sent there; address and bytes of what is received from there."""


class CommunicatorFailedError(Exception):
    """Raised by a communicator if NCCL reports an error; the message has NCCL's."""


class Communicator(Protocol):
    """One rank's end of a communicator between the GPUs of a gang. Used by one thread.

    All methods raise ``CommunicatorFailedError``, except ``abort``.
    """

    def start(self, transfers: Sequence[Transfer]) -> None:
        """Queue a group of transfers behind the work of the current stream. A size of 0 leaves a transfer out."""

    def done(self) -> bool:
        """Return whether all that was queued on the stream before the first look is over."""

    def check(self) -> None:
        """Look for errors that NCCL found in the background."""

    def abort(self) -> None:
        """End all transfers, and release the communicator."""


class Messages(Protocol):
    """The packing of messages on a rank's device, and top-down levels whose phases are queued without a wait.

    ``bin_parents`` is None in traversals without predecessors.

    Attributes:
        xp: the module of the device's arrays.
        outgoing: on the device, the messages to all ranks.
        incoming: int64[p, HEADER + INLINE] on the host, the messages of all ranks.
        results: int64[MOST_AHEAD, FIRST_END + 3 * p] on the host, the results of the levels that were queued together.
    """

    xp: Any
    outgoing: Any
    incoming: NDArray[np.int64]
    results: NDArray[np.int64]

    def most_ahead(self, max_degree: int) -> int:
        """Return the largest frontier, over all ranks, that may be expanded before the host has read its size."""

    def reset(self) -> None:
        """Forget the bins of the traversal before."""

    def pack(self, headers: NDArray[np.int64], bin_rows: Any, bin_parents: Any | None) -> None:
        """Queue the packing of messages with the headers int64[p, HEADER], which must stay until the crossing ends."""

    def expand(
        self,
        tag: Tag,
        scratch: Scratch,
        labels: RankLabels,
        distance: int,
        bin_rows: Any,
        bin_parents: Any | None,
        edges: int,
        ahead: int,
    ) -> None:
        """Queue the first part of a level (see ``Backend.top_down``) and the packing of what the level has binned.

        ``edges`` is the most that the frontier has. ``ahead`` levels have been queued before it since the last wait;
        each swaps the two queues of ``scratch``, and the host does so later.
        """

    def contract(self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int, ahead: int, most: int) -> None:
        """Queue the contraction of the bins that come with the headers of a crossing, and the level's result.

        A level that finds nothing, or more than ``most`` vertices over all ranks, or that has large bins, halts the
        queue: the levels behind it change nothing.
        """

    def contract_large(
        self, rows: Any, parents: Any | None, scratch: Scratch, labels: RankLabels, distance: int
    ) -> None:
        """Queue the contraction of a bin that came behind the headers."""

    def absorb(self, slices: Any, scratch: Scratch) -> None:
        """Queue ``Backend.absorb`` of the slices of all ranks, uint32[words]."""

    def search(self, tag: Tag, found_bits: Any, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        """Queue ``Backend.bottom_up``, and the packing of its counts: those of a crossing behind a bottom-up level.

        The rank's own header is in ``incoming`` after the wait.
        """

    def measure(self, tag: Tag, bits: Any, scratch: Scratch) -> None:
        """Queue the marking of the frontier in the rank's slice, and the packing of its size and degrees."""

    def queued(self) -> int:
        """Wait for the queued work; return the vertices that are queued after ``contract_large``."""


class Library(Protocol):
    """What the exchange needs of NCCL and CUDA; ``nccl.Nccl`` implements it."""

    def new_id(self) -> bytes:
        """Return the id of a new communicator. The process must live until all ranks are connected."""

    def connect(
        self, p: int, rank: int, unique_id: bytes, transfers: Sequence[Transfer], watch: Callable[[], None]
    ) -> Communicator:
        """Become a rank of a communicator once all ranks do, and make a first group of transfers, with all peers.

        ``watch`` is called meanwhile, and may raise. Raises ``CommunicatorFailedError``.
        """

    def pinned(self, words: int) -> NDArray[np.int64]:
        """Return int64[words] of host memory that NCCL can send from and receive into, all zero."""

    def address(self, array: Any) -> int:
        """Return the address of a contiguous array, on the host or the GPU."""
