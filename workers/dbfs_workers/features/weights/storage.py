"""A rank's working memory for shortest paths by weight, and the labels that it keeps."""

import functools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.jit import read_only
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.weights.kernels.piles import CHUNK, FAR, PILES, Piles, Search
from dbfs_workers.features.weights.keys import NONE, PAST, first_unreached, key_of
from dbfs_workers.features.weights.purpose import Number, weighted
from dbfs_workers.ids.label_table import reached
from dbfs_workers.search.cpu import team_calls
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition, require_present
from dbfs_workers.search.partition.stripe import own_rows
from dbfs_workers.search.reports import Row

# Stretches of a near pile for each thread at least, and vertices of one at most.
_STRETCHES = 16
_MOST_TAKEN = 64
_NO_LIMITS: Final = read_only(np.empty(0, np.int64))


@dataclass
class WeightedLabels(RankLabels):
    """The labels of a rank. Distances are int64, float64 or float32; -1 or infinity for unreached rows.

    Until the traversal ends there are none.
    """

    distances: NDArray[Any]

    @property
    def by_source(self) -> NDArray[Any]:
        """The largest distance of the rank's reached rows, 0 without any."""
        largest: NDArray[Any] = self.distances[reached(self.distances)].max(initial=0, keepdims=True)
        return largest


@dataclass
class PathLabels(WeightedLabels):
    """The labels of a rank where only the path to a target is wanted.

    Attributes:
        targets: uint32, the target's row, if it is the rank's.
    """

    targets: NDArray[np.uint32]

    @property
    def by_source(self) -> NDArray[Any]:
        """The distance of the target; empty on other ranks."""
        return self.distances[self.targets]


def distances_of(keys: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the distances of keys, -1 for unreached, as an array of its own."""
    if dtype.kind == "i":
        return keys.copy()
    distances = keys.astype(f"i{dtype.itemsize}").view(dtype)
    distances[keys < 0] = np.inf
    return distances


class WeightScratch:
    """One rank's working memory: see ``rank_levels.RankScratch``.

    Args:
        partition: the rank's edges.
        weights: by edge in the order of the columns, none of them below 0: int64, float64 or float32.
        team: threads that share large rounds; None for one thread.
        back: whether the search follows the edges backwards, from ``Partition.parent_rows``.

    Attributes:
        partition, weights, team: see above.
        search: the arrays.
        piles: the counts.
        records: ``piles`` as kernels take them.
    """

    max_degree = 0

    def __init__(
        self, partition: Partition, weights: NDArray[Any], team: Team | None = None, *, back: bool = False
    ) -> None:
        self.partition, self.weights, self.team = partition, read_only(weights), team
        self.xp: Any = np
        self.frontier_bits: NDArray[np.uint32] | None = None
        stripe = partition.stripe
        ids, rows = stripe.p * stripe.n_local, stripe.n_local
        places = rows + (0 if team is None else team.threads * CHUNK)
        rows_of_edges = partition.parent_rows if back else partition.rows
        assert rows_of_edges is not None
        self.search = Search(
            rows=kernel_rows(rows_of_edges),
            distances=np.empty(ids, np.int64),
            parents=np.empty(ids, np.uint32),
            flags=np.zeros(ids, np.uint8),
            even_queue=np.empty(places, np.uint32),
            odd_queue=np.empty(places, np.uint32),
            far=np.empty(places, np.uint32),
            changed=np.empty(ids if stripe.p > 1 else 0, np.uint32),
            ends=np.zeros(stripe.p, np.int64),
            targets=read_only(np.empty(0, np.uint32)),
            limits=_NO_LIMITS,
            clock=np.zeros(2, np.int64),
            first=partition.rank * rows,
        )
        self.piles = Piles()
        self.records = np.frombuffer(memoryview(self.piles), PILES)

    @property
    def frontier(self) -> NDArray[np.uint32]:
        """The near pile, as local ids."""
        piles, search = self.piles, self.search
        return (search.odd_queue if piles.queue else search.even_queue)[: piles.near]

    @functools.cached_property
    def facts(self) -> tuple[float, int]:
        """The mean of the rank's finite weights, and its rows with edges."""
        weights, rows = self.weights, self.search.rows
        finite = weights if weights.dtype.kind == "i" else weights[np.isfinite(weights)]
        mean = float(finite.mean(dtype=np.float64)) if finite.size else 0.0
        return mean, int(np.count_nonzero(rows.ends - rows.starts))

    @property
    def own(self) -> slice:
        """The ids of the rank's rows."""
        return slice(self.search.first, self.search.first + self.partition.stripe.n_local)

    @property
    def target_ids(self) -> NDArray[np.int64]:
        """The ids of the targets that are the rank's."""
        return self.search.targets.astype(np.int64) + self.search.first

    def labels_for(self, spec: TraversalSpec) -> WeightedLabels:
        """Return labels without distances, which ``levels`` makes at the end."""
        stripe = self.partition.stripe
        parents = np.empty(stripe.n_local, np.uint32) if spec.predecessors else None
        if weighted(spec).path:
            return PathLabels(np.empty(0, np.int64), parents, own_rows(stripe, self.partition.rank, spec.targets))
        return WeightedLabels(np.empty(0, np.int64), parents)

    def start(self, spec: TraversalSpec, labels: RankLabels) -> None:  # noqa: ARG002
        """Clear the last traversal, and make the sources the far pile, with the distance 0.

        Raises:
            InvalidVertexError: a source was deleted.
        """
        require_present(self.partition, spec.sources)
        stripe, search, piles = self.partition.stripe, self.search, self.piles
        unreached = first_unreached(weighted(spec).max_distance, self.weights.dtype)
        search.distances[:] = unreached
        search.flags[:] = 0
        search.ends[:] = 0
        sources = own_rows(stripe, self.partition.rank, spec.sources)
        targets = own_rows(stripe, self.partition.rank, spec.targets) if spec.targets else sources[:0]
        self.search = search._replace(targets=read_only(targets), limits=_NO_LIMITS)
        ids = sources.astype(np.int64) + search.first
        search.distances[ids], search.parents[ids], search.flags[ids] = 0, ids, FAR
        search.far[: sources.size] = sources
        piles.unreached, piles.bound, piles.nearest = unreached, -1, 0
        piles.queue = piles.near = piles.queued = 0
        piles.far = piles.reached = sources.size

    def share(self, row: Row) -> None:
        """Relax the edges of the near pile on the threads of the team: see ``kernels.rounds.relax``."""
        # Imported here, because the import compiles kernels.
        from dbfs_workers.features.weights.kernels import team as kernels

        search, piles, team, weights = self.search, self.piles, self.team, self.weights
        assert team is not None
        near, successor = self.frontier, search.even_queue if piles.queue else search.odd_queue
        taken = min(max(near.size // (_STRETCHES * team.threads), 1), _MOST_TAKEN)
        shared = kernels.shared_words(piles.far, piles.bound, piles.unreached, search.first, taken)
        by_type: list[Any] = [
            weights if weights.dtype == dtype else np.empty(0, dtype) for dtype in (np.int64, np.float64, np.float32)
        ]
        task = kernels.Relaxation(
            search.rows,
            search.distances,
            search.parents,
            search.flags,
            search.far,
            search.changed,
            search.ends,
            by_type[0],
            by_type[1],
            by_type[2],
            near,
            successor,
            shared,
        )
        team_calls.run(team, task)
        results = team.results.reshape(team.threads, -1)
        row.frontier, row.edges, row.own, row.sent, row.discovered = results[:, :5].sum(axis=0).tolist()
        row.levels, row.largest_frontier = 1, row.frontier
        row.filtered, row.culled = row.edges - row.own - row.sent, row.own - row.discovered
        near_end, far_end = kernels.pile_ends(shared)
        piles.near, piles.queued = 0, kernels.squeeze(successor, 0, near_end)
        piles.far = kernels.squeeze(search.far, piles.far, far_end)
        piles.reached += row.discovered
        piles.nearest = min(piles.nearest, NONE - int(results[:, 5].max()))

    def way_over(self, other: "WeightScratch") -> int:
        """Return the key of the shortest way over a vertex that two searches have; ``NONE`` if they have none.

        Looks at the far pile and the targets. Between two buckets all vertices are there that only ``other`` has final.
        """
        search, unreached = self.search, self.piles.unreached
        ids = np.append(search.far[: self.piles.far].astype(np.int64) + search.first, self.target_ids)
        here, there = search.distances[ids], other.search.distances[ids]
        both = (here < unreached) & (there < unreached)
        if not both.any():
            return NONE
        here, there = here[both], there[both]
        if self.weights.dtype.kind == "i":
            return int(min((here.astype(np.uint64) + there.astype(np.uint64)).min(), PAST))
        return key_of((self._numbers(here) + self._numbers(there)).min(), self.weights.dtype)

    def keep_to(self, other: "WeightScratch", most: Number) -> None:
        """Keep vertices out of the piles that are on no way of at most a length, given the search from its end.

        The distances of ``other`` become the limits, in place: none of an unreached vertex is 0 or more.
        """
        search, piles, dtype = self.search, self.piles, self.weights.dtype
        limits = other.search.distances[self.own]
        if most >= PAST or most == np.inf:
            # Sums up to there were not told apart.
            limits[:] = np.where(limits < other.piles.unreached, PAST, -1)
        elif dtype.kind == "i":
            np.subtract(np.int64(most), limits, out=limits)
        else:
            room = (most - self._numbers(limits).astype(np.float64)).astype(dtype)
            # Rounded up.
            limits[:] = np.nextafter(room, dtype.type(np.inf)).view(f"i{dtype.itemsize}")
        far = search.far[: piles.far]
        keys = search.distances[far.astype(np.int64) + search.first]
        kept = keys <= limits[far]
        search.flags[far[~kept].astype(np.int64) + search.first] &= ~np.uint8(FAR)
        piles.far, piles.nearest = int(kept.sum()), int(keys[kept].min(initial=NONE))
        search.far[: piles.far] = far[kept]
        self.search = search._replace(limits=read_only(limits))

    def _numbers(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        """Return keys of floats as these."""
        dtype = self.weights.dtype
        return keys.astype(f"i{dtype.itemsize}").view(dtype)

    @property
    def final(self) -> int:
        """The largest key that is final."""
        return min(self.piles.bound, self.piles.unreached - 1)
