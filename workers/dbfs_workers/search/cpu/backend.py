"""The CPU backend: the phases as Numba kernels over NumPy arrays."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.search.backend import EdgeFrontier, OutgoingBins, OwnerBins
from dbfs_workers.search.cpu import team as cpu_team
from dbfs_workers.search.cpu import team_calls as cpu_team_calls
from dbfs_workers.search.cpu.kernels import level as level_kernels
from dbfs_workers.search.cpu.kernels import phases as kernels
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe

_NONE = np.empty(0, np.uint32)


class CpuBackend:
    """The ``Backend`` on CPU cores: one, or for large levels the threads of the scratch's team.

    Numba compiles one signature a kernel, so an empty array means "none".
    """

    name = "cpu"
    xp: Any = np

    def expand(self, edges: Csr, frontier: NDArray[np.uint32], first_id: int, with_parents: bool) -> EdgeFrontier:
        """Reads 4 bytes of columns an edge and 16 of offsets a vertex; writes 4 bytes an edge, 8 with parents."""
        rows = edges.rows
        total = kernels.edge_count(rows.starts, rows.ends, frontier)
        neighbours = np.empty(total, np.uint32)
        parents = np.empty(total, np.uint32) if with_parents else None
        kernels.expand(
            edges.row_offsets, edges.columns, frontier, first_id, neighbours, _NONE if parents is None else parents
        )
        return EdgeFrontier(neighbours, parents)

    def filter_partition(self, edges: EdgeFrontier, visited: NDArray[np.uint32], stripe: Stripe) -> OwnerBins:
        """Reads 4 bytes and probes one bit an edge; writes each vertex kept twice, 4 bytes each (8 with parents)."""
        # A rank visits each vertex once, so a level keeps at most as many neighbours as there are internal ids.
        room = min(edges.neighbours.size, stripe.p * stripe.n_local)
        kept = np.empty(room, np.uint32)
        kept_parents = None if edges.parents is None else np.empty(room, np.uint32)
        offsets = kernels.filter_visited(
            edges.neighbours,
            _NONE if edges.parents is None else edges.parents,
            visited,
            stripe.p,
            stripe.n_local,
            kept,
            _NONE if kept_parents is None else kept_parents,
        )
        rows = np.empty(offsets[-1], np.uint32)
        parents = None if kept_parents is None else np.empty(offsets[-1], np.uint32)
        kernels.scatter_to_owners(
            kept[: offsets[-1]],
            _NONE if kept_parents is None else kept_parents[: offsets[-1]],
            stripe.n_local,
            offsets[:-1].copy(),
            rows,
            _NONE if parents is None else parents,
        )
        return OwnerBins(offsets, rows, parents)

    def contract(
        self,
        rows: NDArray[np.uint32],
        parents: NDArray[np.uint32] | None,
        own_visited: NDArray[np.uint32],
        distance: int,
        labels: RankLabels,
        discovered: NDArray[np.uint32],
        *,
        own: bool = False,
        team: Team | None = None,
    ) -> int:
        """Reads 4 bytes a vertex (8 with parents), probes one bit, writes its label and its place in the frontier."""
        if team is not None and not own and rows.size >= cpu_team_calls.LEAST_ENTRIES:
            return cpu_team.contract(team, rows, parents, own_visited, distance, labels, discovered)
        return int(
            kernels.contract(
                rows,
                _NONE if parents is None else parents,
                _NONE if own else own_visited,
                distance,
                *labels.arrays,
                discovered,
            )
        )

    def top_down(
        self, scratch: Scratch, labels: RankLabels, distance: int, bins: OutgoingBins
    ) -> tuple[int, int, int, bool]:
        """Reads 4 bytes and probes one bit an edge, reads 16 bytes of offsets a vertex; writes only discoveries."""
        if scratch.team is not None and cpu_team.takes_top_down(scratch):
            return cpu_team.top_down(scratch.team, scratch, labels, distance, bins)
        edges, own, sent = level_kernels.top_down(
            kernel_rows(scratch.rows),
            scratch.frontier,
            scratch.resume,
            scratch.first_id,
            scratch.visited,
            kernels.Bins(bins.bin_rows, bins.bin_parents, bins.bin_ends),
            distance,
            labels.arrays,
            scratch.next_queue,
        )
        return edges, own, sent, bool(scratch.resume[0] < scratch.frontier.size)

    def bottom_up(
        self, scratch: Scratch, labels: RankLabels, distance: int, found_bits: NDArray[np.uint32]
    ) -> tuple[int, int, int]:
        """Reads 16 bytes of offsets a row, and 4 bytes and one bit an edge up to the row's first parent."""
        if scratch.team is not None and cpu_team_calls.takes_search(scratch.own_visited):
            return cpu_team.bottom_up(scratch.team, scratch, labels, distance, found_bits)
        own, into = scratch.rows, scratch.parent_rows
        assert into is not None
        found: tuple[int, int, int] = level_kernels.bottom_up(
            *into,
            own.starts,
            own.ends,
            scratch.frontier_bits,
            scratch.own_visited,
            found_bits,
            distance,
            *labels.arrays,
            scratch.next_queue,
        )
        return found

    def mark(self, rows: NDArray[np.uint32], bits: NDArray[np.uint32]) -> None:
        """Reads 4 bytes a vertex, writes one bit a row of the rank."""
        level_kernels.mark(rows, bits)

    def absorb(
        self, slice_bits: NDArray[np.uint32], frontier_bits: NDArray[np.uint32], visited: NDArray[np.uint32]
    ) -> None:
        """Reads one bit a row and writes two."""
        level_kernels.absorb(slice_bits, frontier_bits, visited)

    def edge_count(self, partition: Partition, frontier: NDArray[np.uint32]) -> int:
        """Reads 16 bytes of offsets a vertex."""
        rows = partition.rows
        return int(kernels.edge_count(rows.starts, rows.ends, frontier))

    def typed_errors(self, where: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context that changes nothing: NumPy and Numba raise no errors of a device."""
        return nullcontext()

    def to_device(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself."""
        return array

    def to_host(self, array: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the array itself, or its copy in ``out``."""
        if out is None:
            return np.asarray(array)
        np.copyto(out, array)
        return out
