"""A rank's working memory for shortest paths by weight, and the labels that it keeps."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.jit import read_only
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.weights.kernels.piles import CHUNK, FAR, NONE, PILES, Piles, Search
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


def number_of(key: int, dtype: np.dtype[Any]) -> Number:
    """Return the distance of a key."""
    return np.array([key], f"i{dtype.itemsize}").view(dtype)[0].item()  # type: ignore[no-any-return]


def key_of(number: Number, dtype: np.dtype[Any]) -> int:
    """Return the key of a distance: see ``kernels.piles``."""
    return int(np.array([number], dtype).view(f"i{dtype.itemsize}")[0])


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
        weights: by edge in the order of ``Partition.columns``, none of them below 0: int64, float64 or float32.
        team: threads that share large rounds; None for one thread.

    Attributes:
        partition, weights, team: see above.
        search: the arrays.
        piles: the counts.
        records: ``piles`` as kernels take them.
    """

    max_degree = 0

    def __init__(self, partition: Partition, weights: NDArray[Any], team: Team | None = None) -> None:
        self.partition, self.weights, self.team = partition, read_only(weights), team
        self.xp: Any = np
        self.frontier_bits: NDArray[np.uint32] | None = None
        stripe = partition.stripe
        ids, rows = stripe.p * stripe.n_local, stripe.n_local
        places = rows + (0 if team is None else team.threads * CHUNK)
        self.search = Search(
            rows=kernel_rows(partition.out_edges.rows),
            distances=np.empty(ids, np.int64),
            parents=np.empty(ids, np.uint32),
            flags=np.zeros(ids, np.uint8),
            even_queue=np.empty(places, np.uint32),
            odd_queue=np.empty(places, np.uint32),
            far=np.empty(places, np.uint32),
            changed=np.empty(ids if stripe.p > 1 else 0, np.uint32),
            ends=np.zeros(stripe.p, np.int64),
            targets=read_only(np.empty(0, np.uint32)),
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

    def labels_for(self, spec: TraversalSpec) -> WeightedLabels:
        """Return labels without distances, which ``levels`` makes at the end."""
        parents = np.empty(self.partition.stripe.n_local if spec.predecessors else 0, np.uint32)
        return WeightedLabels(np.empty(0, np.int64), parents if spec.predecessors else None)

    def start(self, spec: TraversalSpec, labels: RankLabels) -> None:  # noqa: ARG002
        """Clear the last traversal, and make the sources the far pile, with the distance 0.

        Raises:
            InvalidVertexError: a source was deleted.
        """
        require_present(self.partition, spec.sources)
        stripe, search, piles = self.partition.stripe, self.search, self.piles
        unreached = NONE if self.weights.dtype.kind == "i" else key_of(np.inf, self.weights.dtype)
        most = weighted(spec).max_distance
        if most is not None:
            unreached = min(unreached, key_of(largest(most, self.weights.dtype), self.weights.dtype) + 1)
        search.distances[:] = unreached
        search.flags[:] = 0
        search.ends[:] = 0
        sources = own_rows(stripe, self.partition.rank, spec.sources)
        targets = own_rows(stripe, self.partition.rank, spec.targets) if spec.targets else sources[:0]
        self.search = search._replace(targets=read_only(targets))
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

    @property
    def final(self) -> int:
        """The largest key that is final."""
        return min(self.piles.bound, self.piles.unreached - 1)


def largest(number: Number, dtype: np.dtype[Any]) -> Number:
    """Return the largest number of a type that is not above a given one, which is at least 0."""
    if dtype.kind == "i":
        return min(int(number), NONE - 1) if number < NONE else NONE - 1
    rounded = dtype.type(number)
    return rounded.item() if rounded <= number else np.nextafter(rounded, dtype.type(0)).item()  # type: ignore[no-any-return]
