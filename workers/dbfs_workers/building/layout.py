"""How the edges of a graph lie on its ranks, if each rank does not have those of its own stripe (the layout 1d)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import Csr, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.building.delivering import Bins
    from dbfs_workers.search.exchange.nccl import NcclExchange
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
    from dbfs_workers.search.members.loop import LoopRunner


class Layout(ABC):
    """The places of a graph's edges on its ranks, and what makes and traverses the ranks' parts.

    A layout is small, and travels in records and messages. The vertices lie in stripes in any layout. On GPUs no kernel
    of a layout waits for a peer, so that several ranks may share a GPU. ``str`` of a layout is the shape in which the
    ranks are.

    Attributes:
        name: as ``dbfs.load`` takes it.
        binned_bytes: bytes of an edge of a piece while the piece is binned.
    """

    name: ClassVar[str]
    binned_bytes: ClassVar[int]

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What the ranks form, as in "4 ranks in a 2x2 grid"."""

    # How the ranks exchange.

    @abstractmethod
    def between_gpus(self) -> tuple[str, ...]:
        """Return the exchanges that the ranks have on GPUs, but for those through the host; the fastest first."""

    @abstractmethod
    def bin_entries(self, stripe: Stripe) -> int:
        """Return the entries of a bin of the ranks' exchange."""

    # What a rank is.

    @abstractmethod
    def kernels(self, threads: int) -> tuple[str, ...]:
        """Return the kernels that a rank on CPUs needs beside those of 1d, as ``compiling.found`` takes them.

        Args:
            threads: threads that share the rank's work.
        """

    @abstractmethod
    def runner(
        self,
        exchange: SharedMemoryExchange | NcclExchange,
        backend: str,
        threads: int,
        between: str,
        graph_id: str,
    ) -> LoopRunner:
        """Return what makes the traversals of a rank.

        Args:
            exchange: the rank's end of the exchange, with bins of ``bin_entries``.
            backend, threads: as of ``LoopRunner``.
            between: how the ranks exchange, as of ``JoinGang.exchange``.
            graph_id: the graph.
        """

    # How a rank's part is built, and joined to that of 1d.

    @abstractmethod
    def bins(
        self,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        stripe: Stripe,
        stores: int,
        *,
        symmetrise: bool,
        name: str,
    ) -> Sequence[Bins]:
        """Cut edges into the bins of each rank's stores; return them by rank.

        Args:
            src, dst, stripe, symmetrise, name: as of ``binning.bin_edges``.
            stores: the stores that each rank collects.

        Errors as for ``binning.bin_edges``.
        """

    @abstractmethod
    def out_holders(self, owner: int) -> Sequence[int]:
        """Return the ranks that have the edges which start in a rank's rows."""

    @abstractmethod
    def in_holders(self, owner: int) -> Sequence[int]:
        """Return the ranks that have the edges which end in a rank's rows."""

    @abstractmethod
    def out_part(self, edges: RankEdges, owner: int) -> Csr:
        """Return the edges on one of the ``out_holders`` that start in the rows of ``owner``, by these rows."""

    @abstractmethod
    def in_part(self, edges: RankEdges, owner: int) -> Csr:
        """Return the edges on one of the ``in_holders`` that end in the rows of ``owner``, by these rows.

        The rank has to have its edges by their ends. The columns are internal ids.
        """

    @abstractmethod
    def places(
        self, rows: NDArray[np.int64], others: NDArray[np.int64], *, by_end: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where edges lie: the rank of each, and which of the rank's lists has it.

        Args:
            rows: the owners of the vertices in whose rows the edges are: of their starts, or with ``by_end`` of their
                ends.
            others: the owners of their other vertices.
            by_end: whether the lists are those of ``RankEdges.in_lists``, instead of ``out_lists``.
        """

    @abstractmethod
    def with_degrees(self, edges: RankEdges, degrees: Sequence[NDArray[np.int64]]) -> RankEdges:
        """Return a rank's edges, given the out-degrees of its own rows on each of its ``out_holders``."""

    # What a rank takes.

    @abstractmethod
    def partition_bytes(self, stripe: Stripe, m_local: int, *, bottom_up: bool) -> dict[str, int]:
        """Return the bytes of a rank's part by name, for ``m_local`` edges; ``bottom_up`` as of ``run_bytes``."""

    @abstractmethod
    def run_bytes(self, stripe: Stripe, *, bottom_up: bool) -> dict[str, int]:
        """Return the most bytes of a traversal on a CPU rank, its labels excluded: of ``state``, and of ``bins``.

        Args:
            bottom_up: whether each edge is also stored by its end, for bottom-up levels.
        """

    @abstractmethod
    def remote_bytes(self, stripe: Stripe, hosts: Sequence[int]) -> int:
        """Return the most bytes of bins that the lowest rank of a host holds for ranks of other hosts.

        ``hosts`` has the host of each rank.
        """
