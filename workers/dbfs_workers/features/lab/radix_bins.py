"""A level of one rank of several in a row, on a GPU (Merrill 2012, section 6).

The rank has two edge queues: one before the sort and one after, whose ranges are the bins, and a vertex queue. The sort
is a radix pass of three kernels: blocks count the neighbours by owner, a prefix sum gives each block its places in the
bins, and blocks copy their neighbours there in order. The first kernel also culls what was visited and duplicates, by
the best-effort bitmask of all vertices and the tables of warps and blocks. After a barrier a launch for each rank
contracts that rank's bin, which it reads on the rank's GPU. Nothing claims a vertex, so duplicates may go on. If they
fill a queue, as in a graph so small that all its edges are in flight at once, the frontier is made anew without them.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.features.lab.device import Device
from dbfs_workers.features.lab.enactor import C2050_THREADS, policy_numbers
from dbfs_workers.features.lab.layout import COUNTERS, LabCounter
from dbfs_workers.features.lab.strategies import Policy
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.cuda import owner_bins
from dbfs_workers.search.partition.labels import RankLabels

# Entries of a queue for each warp of a launch.
_LANES = 32
# Further entries of each queue, for the duplicates of small graphs.
_SPARE = 1 << 20

Lend = Callable[[str, int], tuple[Any, Mapping[int, int]]]
"""Returns an array of so many words that the peers read, and the address of the array of that name of each peer."""


class RadixBins:
    """The levels of one rank in one traversal.

    Args:
        device: where the kernels run.
        offsets: int64[n_local + 1], in the device's memory.
        columns: uint32, internal ids of the neighbours, there too.
        policy: how neighbours are gathered, and which duplicates are culled.
        predecessors: whether parents are recorded.
        lend: see ``Lend``. All ranks call it alike.

    Raise ``InvalidOptionError`` if there are more ranks than the sort tells apart.
    """

    def __init__(
        self,
        device: Device,
        offsets: Any,
        columns: Any,
        *,
        rank: int,
        ranks: int,
        policy: Policy,
        predecessors: bool,
        lend: Lend,
    ) -> None:
        if ranks > owner_bins.MOST_OWNERS:
            most = owner_bins.MOST_OWNERS
            raise InvalidOptionError(f"strategy {policy.strategy} runs on up to {most} ranks, not {ranks}")
        xp: Any = device.xp
        tuning, n_local = Tuning(), offsets.size - 1
        edges = int(tuning.edge_queue * columns.size) + _SPARE
        few = C2050_THREADS // device.threads
        self._most_blocks = few if policy.grid == "c2050" else tuning.most_blocks
        self._device, self._rank, self._ranks = device, rank, ranks
        self._edges = xp.empty(edges, np.uint32)
        self._vertices = xp.empty(int(tuning.vertex_queue * n_local) + _SPARE, np.uint32)
        self._parents = xp.empty(edges, np.uint32) if predecessors else None
        self._owner_of = xp.empty(edges, np.uint8)
        self._counts = xp.empty(ranks * self._most_blocks, np.uint64)
        self._counters = xp.empty(COUNTERS, np.uint64)
        self._visited = xp.zeros(ranks * n_local // 8, np.uint8)
        self._nothing = xp.zeros(COUNTERS, np.uint64)
        # Before the bins lie where they begin: the first at 0, and each where the one before ends.
        words = 2 * (ranks + 1)
        lent, of_peers = lend("bins", words + edges)
        self._starts, self._bins = lent[:words].view(np.uint64), lent[words:]
        self._starts[0] = 0
        self._starts_of = {rank: device.address(lent), **of_peers}
        nothing: tuple[Any, Mapping[int, int]] = None, {}
        self._bin_parents, parents_of = lend("parents", edges) if predecessors else nothing
        self._parents_of = {rank: self._address(self._bin_parents), **parents_of}
        self._bins_at = words * lent.itemsize
        self._kept = offsets, columns
        self._set(
            {
                **policy_numbers(policy),
                "offsets": device.address(offsets),
                "columns": device.address(columns),
                "flags": device.address(self._owner_of),
                "counters": device.address(self._counters),
                "start": device.address(self._nothing),
                "least": 0,
                "most": np.iinfo(np.uint64).max,
                "rows": n_local,
                "owners": ranks,
                "first_id": rank * n_local,
            }
        )

    def sort(self, frontier: NDArray[np.uint32]) -> tuple[int, list[NDArray[np.uint32]]]:
        """Expand a frontier of local ids, and sort the neighbours that pass the culling into bins.

        Returns:
            The number of neighbours, and by owner the local ids of its bin, readable until the next call.
        """
        device = self._device
        self._set({"before": 0, "bitmask": device.address(self._visited)})
        edges = self._expand(frontier)
        if edges > self._edges.size:
            edges = self._expand(device.xp.unique(frontier))
        blocks = owner_bins.blocks_for(edges, device.threads, self._most_blocks)
        counts = self._counts[: self._ranks * blocks]
        self._queues((self._edges[:edges], self._parents), (self._bins, self._bin_parents))
        self._set({"tile_sums": device.address(counts)})
        self._launch("count_by_owner", "radix_bins", blocks)
        ends = device.xp.cumsum(counts, dtype=np.uint64)
        self._set({"tile_sums": device.address(ends)})
        self._launch("copy_to_bins", "radix_bins", blocks)
        self._starts[1:] = ends[blocks - 1 :: blocks]
        starts = device.read(self._starts).astype(np.int64).tolist()
        return edges, [self._bins[start:end] for start, end in pairwise(starts)]

    def contract(self, labels: RankLabels, distance: int, most: int) -> tuple[NDArray[np.uint32], int]:
        """Label what is new in the bins for this rank, which all ranks have sorted.

        Args:
            distance: the label of what is new.
            most: the most entries of a bin, as far as the host knows.

        Returns:
            The new frontier, readable until the next call, in which a vertex may be twice; and the bins' entries.
        """
        device, n_local = self._device, labels.distances.size
        self._counters.fill(0)
        self._queues((self._bins, None), (self._vertices, None))
        self._set({"labels": device.address(labels.distances), "parents": self._address(labels.predecessors)})
        self._set({"distance": distance})
        # The own bin first: its vertices are in the bitmask already, and so the peers' copies of them are dropped.
        for peer in (*range(self._rank, self._ranks), *range(self._rank)):
            own_bits = device.address(self._visited) + self._rank * n_local // 8
            starts = self._starts_of[peer]
            self._set({"before": starts + 8 * self._rank, "bitmask": 0 if peer == self._rank else own_bits})
            self._set({"in_ids": starts + self._bins_at, "in_parents": self._parents_of.get(peer, 0)})
            self._launch("contract_bin", "radix_bins", owner_bins.blocks_for(most, device.threads, self._most_blocks))
        counters = device.read(self._counters)
        queued, frontier = int(counters[LabCounter.QUEUED]), self._vertices
        if queued > frontier.size:
            # What had no room has a label.
            frontier = device.xp.flatnonzero(labels.distances == distance).astype(np.uint32)
        return frontier[:queued], int(counters[LabCounter.LOOKED_AT])

    def _expand(self, frontier: Any) -> int:
        """Gather a frontier's neighbours into the edge queue; return the entries that it needs."""
        self._counters.fill(0)
        self._queues((frontier, None), (self._edges, self._parents))
        # A block for each warp of the frontier, as far as they run at once.
        blocks = max(1, min(self._most_blocks, -(-frontier.size // _LANES)))
        self._launch("expand", "two_phase", blocks)
        return int(self._device.read(self._counters)[LabCounter.QUEUED])

    def _queues(self, into: tuple[Any, Any], out: tuple[Any, Any]) -> None:
        """Set the input queue and the output queue of the next launches: ids, and their parents if there are any."""
        address = self._address
        self._set({"in_ids": address(into[0]), "in_parents": address(into[1]), "in_size": into[0].size})
        self._set({"out_ids": address(out[0]), "out_parents": address(out[1]), "out_capacity": out[0].size})

    def _launch(self, kernel: str, source: str, blocks: int) -> None:
        self._device.launch(source, f"dbfs_lab_{kernel}", blocks)

    def _address(self, array: Any | None) -> int:
        return 0 if array is None else self._device.address(array)

    def _set(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            self._device.arguments[name][0] = value
