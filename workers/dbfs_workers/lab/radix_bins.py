"""The sort of a rank's neighbours into a bin for each owner (Merrill 2012, section 6), on a GPU.

The rank has two edge queues: one before the sort and one after, whose ranges are the bins. The sort is a radix pass of
three kernels: blocks count the neighbours by owner, a prefix sum gives each block its places in the bins, and blocks
copy their neighbours there in order. The first kernel also culls what was visited and duplicates, by the best-effort
bitmask and the tables of warps and blocks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.lab_layout import COUNTERS, LabCounter
from dbfs_workers.lab.device import Device, Gpu
from dbfs_workers.lab.enactor import policy_constants, policy_numbers
from dbfs_workers.lab.strategies import Policy
from dbfs_workers.lab.tuning import Tuning
from dbfs_workers.storage.grid_scratch import GridScratch

# Entries of a queue for each warp of a launch.
_LANES = 32


class RadixBins:
    """The sort of one rank in one traversal.

    Args:
        device: where the kernels run.
        offsets: int64[rows + 1], in the device's memory.
        columns: uint32, internal ids of the neighbours, there too.
        first_id: the internal id of the first vertex of the ranks that bins are for.
        n_local: vertices of each of these ranks.
        owners: number of these ranks.
        policy: how neighbours are gathered, and which duplicates are culled.
    """

    def __init__(
        self, device: Device, offsets: Any, columns: Any, *, first_id: int, n_local: int, owners: int, policy: Policy
    ) -> None:
        self._device, self._owners = device, owners
        xp: Any = device.xp
        self._edges = xp.empty(columns.size, np.uint32)
        self._bins = xp.empty(columns.size, np.uint32)
        self._owner_of = xp.empty(columns.size, np.uint8)
        self._counts = xp.empty(owners * Tuning().most_blocks, np.uint64)
        self._counters = xp.empty(COUNTERS, np.uint64)
        self._visited = xp.zeros(owners * n_local // 8, np.uint8)
        self._kept = offsets, columns
        self._set(
            {
                **policy_numbers(policy),
                "offsets": device.address(offsets),
                "columns": device.address(columns),
                "bitmask": device.address(self._visited),
                "flags": device.address(self._owner_of),
                "counters": device.address(self._counters),
                "before": 0,
                "least": 0,
                "most": np.iinfo(np.uint64).max,
                "rows": n_local,
                "owners": owners,
                "first_id": first_id,
                "out_parents": 0,
                "in_parents": 0,
                "out_capacity": columns.size,
            }
        )

    @classmethod
    def of(cls, scratch: GridScratch, policy: Policy) -> "RadixBins":
        """Return the sort of a rank of a 2-D partition on the current GPU."""
        (edges,), n_local = scratch.blocks.out, scratch.stripe.n_local
        return cls(
            Gpu(Tuning().threads, policy_constants(policy)),
            *(edges.row_offsets, edges.columns),
            first_id=(scratch.partition.rank - scratch.column) * n_local,
            n_local=n_local,
            owners=scratch.grid.columns,
            policy=policy,
        )

    def visit(self, bits: NDArray[np.uint32]) -> None:
        """Mark vertices visited: uint32, a bit for each vertex of the ranks that bins are for."""
        self._visited |= bits.view(np.uint8)

    def sort(self, frontier: NDArray[np.uint32]) -> tuple[int, list[NDArray[np.uint32]]]:
        """Expand a frontier of rows, and sort the neighbours that pass the culling into bins.

        Returns:
            The number of neighbours, and by owner the local ids of its bin, readable until the next call.
        """
        self._counters.fill(0)
        self._launch("expand", "two_phase", frontier, self._blocks(frontier.size, _LANES))
        edges = int(self._device.read(self._counters)[LabCounter.QUEUED])
        neighbours = self._edges[:edges]
        blocks = self._blocks(edges, self._device.threads)
        counts = self._counts[: self._owners * blocks]
        counts.fill(0)
        self._set({"tile_sums": self._device.address(counts)})
        self._launch("count_by_owner", "radix_bins", neighbours, blocks)
        ends = self._device.xp.cumsum(counts, dtype=np.uint64)
        self._set({"tile_sums": self._device.address(ends)})
        self._launch("copy_to_bins", "radix_bins", neighbours, blocks)
        of_owners = self._device.read(ends[blocks - 1 :: blocks]).astype(np.int64).tolist()
        starts = [0, *of_owners[:-1]]
        return edges, [self._bins[start:end] for start, end in zip(starts, of_owners, strict=True)]

    def _launch(self, kernel: str, source: str, taken: Any, blocks: int) -> None:
        device = self._device
        out = self._edges if source == "two_phase" else self._bins
        self._set({"in_ids": device.address(taken), "in_size": taken.size, "out_ids": device.address(out)})
        if taken.size:
            device.launch(f"lab/{source}.cu", f"dbfs_lab_{kernel}", blocks)

    @staticmethod
    def _blocks(size: int, share: int) -> int:
        """Return the blocks of a launch: one for a share of the entries, as far as they run at once."""
        return max(1, min(Tuning().most_blocks, -(-size // share)))

    def _set(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            self._device.arguments[name][0] = value
