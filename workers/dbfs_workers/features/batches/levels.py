"""The levels of a batch: many sources at once, with a bit for each source where a traversal has a bit.

One look at an edge serves all sources of the batch (Then et al., "The More the Merrier: Efficient Multi-Source Graph
Traversal", VLDB 2014). A level is a stepper of the loop. Top-down, each rank adds the words of its frontier to those of
the neighbours, and sends the words of other ranks' vertices to their owners. Bottom-up, each rank sends the words of
its frontier to all others; then every row looks for the bits that it lacks, and is done when it has all that are in the
frontier. A source with a small frontier would keep most rows from being done, so such sources go top-down in the same
level: see ``_small_frontiers``. ``words`` has the ways of words between ranks.

If the batch keeps counts alone, each rank may take a share of the sources over a copy of all rows instead. The ranks
then cross once a level.

Where the sources share little, the rest of the batch runs one by one: see ``_shares``.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base import compiling
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.batches.copied_rows import copied_rows
from dbfs_workers.features.batches.kernels import NEEDED
from dbfs_workers.features.batches.operators import BatchOperators, ChosenRows, Overlap
from dbfs_workers.features.batches.path_sweeps import PathSweeps
from dbfs_workers.features.batches.purpose import SWEPT, batch_of, width_of
from dbfs_workers.features.batches.storage import BatchScratch, RankBatch, zeros_in_lines
from dbfs_workers.features.batches.words import BatchWords, OwnWords, PackedWords
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.direction import bottom_up_pays_batch
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.loop import LevelLoop
from dbfs_workers.search.levels.rank_levels import RankLevels
from dbfs_workers.search.levels.state import BOTTOM_UP, TOP_DOWN, State, end_level, over, take_sums
from dbfs_workers.search.levels.stepper import RankWork, elapsed
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition, require_present
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.counts import Total

# Sources with small frontiers: the largest share of all vertices that a frontier of theirs has, in the order of trial,
# and the largest share of all edges that these frontiers have together.
_SMALL_FRONTIERS: Final = tuple(2.0**-power for power in (10, 11, 12, 13))
_SMALL_EDGES: Final = 1 / 8
# Least share of all edges that a source's frontier has on average. With fewer, most rows look at all of their edges,
# whatever sources they look for.
_LARGE_EDGES: Final = 1 / 16
# Levels before the ranks first ask whether the sources share enough. Graphs of small diameter have fewer.
_LEVELS: Final = 16


class BatchWork(RankWork):
    """See ``RankWork``. The targets of a batch end nothing."""

    labels: RankBatch

    def count_missing_targets(self) -> int:
        """Return 0."""
        return 0


class Settled(NamedTuple):
    """The crossing with a frontier of a batch, after which the next level begins: see ``reports.crossings``.

    Attributes:
        vertices: vertices of the frontier.
        edges: the sum of their degrees.
        bits: their bits, one for each source.
        bit_edges: for each bit its vertex's degree.
        edges_inspected: edges that the level inspected which has made the frontier.
    """

    vertices: Total
    edges: Total
    bits: Total
    bit_edges: Total
    edges_inspected: Total


class Placement(NamedTuple):
    """Where the levels of a batch run: on the rank's rows, or on a copy of the rows of all ranks.

    Attributes:
        scratch: working memory for the rows.
        operators: run the phases.
        words: moves words between ranks.
    """

    scratch: BatchScratch
    operators: BatchOperators
    words: BatchWords


class LoneTraversal(NamedTuple):
    """What a rank has of the traversal from one source of a batch.

    Attributes:
        labels: int32[n_local], distances, -1 unreached.
        largest: a bound of the distances.
        reached: rows reached.
        edges: sum of their degrees.
    """

    labels: NDArray[np.int32]
    largest: int
    reached: int
    edges: int


class BatchLevels(RankLevels[BatchScratch]):
    """The levels of a rank in a batch: see ``RankLevels``. The class is also the stepper of these levels.

    Args:
        striped: the place of the rank's rows.
        place: makes a place for a copy of all rows.
        free_bytes: returns the bytes that labels may still take.
        alone: makes traversals from one source each, one after another.
        together: whether sources may share levels; only of the layout 1d.
    """

    def __init__(
        self,
        striped: Placement,
        place: Callable[[Partition], Placement],
        exchange: Exchange,
        free_bytes: Callable[[], int],
        alone: Callable[[RunSpec], Iterable[LoneTraversal]],
        *,
        together: bool,
    ) -> None:
        super().__init__(striped.scratch, exchange, BatchWork())
        self._striped, self._place, self._free_bytes = striped, place, free_bytes
        self._copy: Placement | None = None
        self._alone, self._together = alone, together
        self._move(striped)
        self.steppers = {TOP_DOWN: self, BOTTOM_UP: self}

    @property
    def nbytes(self) -> int:
        """Bytes of the working memory and the copy."""
        copied = 0 if self._copy is None else self._copy.scratch.nbytes + self._copy.scratch.partition.nbytes
        return self._striped.scratch.nbytes + copied

    def start(self, spec: TraversalSpec, labels: RankLabels, state: State, *, stops: bool) -> bool:
        assert isinstance(labels, RankBatch)
        self._spec, self._kept, self._adaptive = spec, labels, state.adaptive
        # Directions are those of ``bottom_up_pays_batch``, and targets end nothing.
        state.adaptive = state.measuring = state.measured = state.targets = False
        self._counts: list[NDArray[np.int64]] = []
        # Over all ranks: vertices of all frontiers, and their bits; the edges of the sources' frontiers.
        self._vertices = self._bits = self._source_edges = 0
        # Pairs of a source and a vertex that it has not reached. Without any, no level follows.
        self._pairs = len(spec.sources) * state.n
        self._shared = self._together
        self._sources, self._own = len(spec.sources), slice(0, len(spec.sources))
        if batch_of(spec).copied:
            spec = self._move_to_copy(spec)
        if self.scratch.width not in (0, width_of(len(spec.sources), spec.backend)):
            self._words.close()
        if not super().start(spec, labels, state, stops=stops):
            # The sources have their bits already.
            self.reset()
            return False
        self._exchange.reset(True)
        state.unexplored_edges = self._edges = self._averages([state.unexplored_edges])[0]
        if self._shared:
            state.reached, state.edges = self._settle(state, Row())
        else:
            state.frontier = 0
        return True

    def run(self, state: State, table: LevelTable) -> None:
        """Run a level; see ``Stepper``."""
        row, scratch, operators = table.row(), self.scratch, self._operators
        bottom_up, reached, edges = state.bottom_up, state.reached, state.edges
        pushed: ChosenRows | None = None
        row.edges = 0
        if bottom_up:
            self._words.send(state, row, everywhere=True)
            wanted, pushed = self._small_frontiers(state)
            operators.pull(scratch, wanted)
        pushes = not bottom_up or pushed is not None
        if pushes:
            row.edges = operators.push(scratch, pushed)
        row.search += elapsed(state)
        if pushes:
            self._words.send(state, row, everywhere=False)
        new, new_edges = self._settle(state, row)
        # The peers have read what this rank sent: its last frontier, or the words of other ranks' vertices.
        operators.clear(scratch.width, scratch.marked, scratch.found)
        # Bits pushed to other ranks' vertices stay in the arrays of the new frontier. No harm: the neighbours of these
        # vertices have the bits, or get them in the next level.
        # ``end_level`` has counted each vertex once. A batch counts a vertex once for each source.
        state.reached, state.edges = reached + new, edges + new_edges
        table.add()

    def end(self, state: State) -> None:
        """Run the sources one by one if they share too little; complete the counts, and clear the frontier."""
        scratch = self.scratch
        if self._together:
            self._operators.clear(scratch.width, scratch.live, scratch.front)
            self._operators.clear(scratch.width, scratch.marked, scratch.found)
        self._move(self._striped)
        if self._shared:
            self._kept.counts = np.zeros((len(self._counts), self._kept.sources), np.int64)
            self._kept.counts[:, self._own] = self._counts
        else:
            self._run_alone(state)
            state.ended = time.perf_counter_ns()
        if SWEPT & set(self._kept.keeps):
            stripe, whole = self.scratch.partition.stripe, self._whole().scratch.partition
            PathSweeps(
                stripe, whole, self._operators, self._exchange, self._words, state, self._kept, self._free_bytes
            ).run()
        # A client may release the results long before another run has batches.
        del self._kept, self._work.labels
        self.scratch.forget_kept()

    def reset(self) -> None:
        """Clear what is left of a group that ended early."""
        self._move(self._striped)
        for placed in (self._striped, self._copy):
            if placed is not None:
                placed.scratch.forget_kept()
                placed.scratch.reset()

    def close(self) -> None:
        """Free the words and the copy, on all ranks together. Errors as for ``Exchange.cross``."""
        self._copy = None
        self._words.close()

    def _move(self, placed: Placement) -> None:
        self.scratch, self._operators, self._words = placed

    def _whole(self, beside: int = 0) -> Placement:
        """Return the place of the rows of all ranks; arguments and errors as of ``copied_rows``."""
        # Traversals one by one have set bins without parents.
        self._exchange.reset(True)
        if self._copy is None:
            scratch, _, words = self._striped
            whole = copied_rows(scratch.partition, scratch.xp, self._exchange, words, self._free_bytes, beside)
            self._copy = self._place(whole)
        return self._copy

    def _move_to_copy(self, spec: TraversalSpec) -> TraversalSpec:
        """Take a share of the sources to the copy of all rows, and return the spec of the share."""
        partition, stripe = self.scratch.partition, self.scratch.partition.stripe
        require_present(partition, spec.sources)
        self._move(self._whole(batch_of(spec).bytes_of(spec, len(spec.sources), stripe.p, stripe.n_local)[0]))
        count, p = len(spec.sources), stripe.p
        self._own = slice(count * partition.rank // p, count * (partition.rank + 1) // p)
        # The same number on all ranks, which decide by it.
        self._sources = -(-count // p)
        ids: NDArray[np.int64] = stripe.internal(np.array(spec.sources)[self._own])
        return replace(spec, sources=tuple(ids.tolist()))

    def _averages(self, sums: Iterable[int]) -> list[int]:
        """Return sums over all ranks; on copies of all rows, the sums divided by the number of ranks, rounded up."""
        p = self._exchange.p if self.scratch is not self._striped.scratch else 1
        return [-(-each // p) for each in sums]

    def _small_frontiers(self, state: State) -> tuple[NDArray[np.uint64], ChosenRows | None]:
        """Divide the sources of a bottom-up level: those that rows look for, and those with small frontiers.

        All ranks that share rows choose the same sources.

        Returns:
            The bits of the first; the frontier's rows that push the bits of the others, None without others.
        """
        counts = self._words.add_up(state.level, self._settled)
        all_sources = _bits(counts > 0), None
        if not self._adaptive or self._source_edges < _LARGE_EDGES * self._edges * self._sources:
            return all_sources
        # Stable, since the hosts of the ranks may sort by different instructions.
        order = np.argsort(counts, kind="stable")
        for share in _SMALL_FRONTIERS:
            small = np.zeros(counts.size, bool)
            small[order[np.cumsum(counts[order]) <= share * state.n]] = True
            if not counts[small].any():
                break
            chosen = self._operators.choose(self.scratch, _bits(small))
            if self._words.add_up(state.level, np.array([chosen.edges]))[0] <= _SMALL_EDGES * self._edges:
                return _bits(~small & (counts > 0)), chosen
        return all_sources

    def _settle(self, state: State, row: Row) -> tuple[int, int]:
        """Make the new bits of the rank's rows the next frontier, cross with the sums, and choose the direction.

        Returns:
            The new bits, and the sum of their rows' degrees.
        """
        scratch, kept, distance = self.scratch, self._kept, len(self._counts)
        settled = self._operators.settle(scratch)
        # The sources are found without a search.
        row.edges += settled.looked if distance and state.bottom_up else 0
        self._settled = settled.counts
        self._counts.append(settled.counts[: self._own.stop - self._own.start])
        kept.hold(distance, self._free_bytes)
        self._operators.note(scratch, distance, kept)
        row.own = settled.rows
        row.contract += elapsed(state)
        counts = Settled(settled.rows, settled.degrees, settled.bits, settled.bit_degrees, row.edges)
        totals = self._exchange.cross(state.level, "batch", counts, sliced=False)
        sums, self._pairs = Settled._make(self._averages(totals)), self._pairs - totals.bits
        scratch.advance()
        if distance:
            state.found, state.inspected = sums.vertices, sums.edges_inspected
            end_level(state, row, settled.rows)
        else:
            state.size = settled.rows
        row.exchange += elapsed(state)
        take_sums(state, sums.vertices, sums.edges, 0)
        self._source_edges = sums.bit_edges
        self._vertices += sums.vertices
        self._bits += sums.bits
        if not self._pairs:
            state.frontier = 0
        if self._adaptive:
            state.bottom_up = bottom_up_pays_batch(state, self._edges, sums.edges_inspected)
        if not over(state) and not self._shares(state):
            self._shared, state.frontier = False, 0
        return settled.bits, settled.bit_degrees

    def _shares(self, state: State) -> bool:
        """Return whether the sources share enough so far. All ranks return the same."""
        if state.level < _LEVELS:
            return True
        return self._operators.pays(Overlap(self._sources, state.level, self._vertices, self._bits, state.n))

    def _run_alone(self, state: State) -> None:
        """Run the sources one by one, and take their labels. What was found so far stays right, and sums begin anew."""
        kept, spec = self._kept, self._spec
        kept.sums[:] = 0
        by_source: list[NDArray[np.int64]] = []
        state.reached = state.edges = 0
        options = replace(spec, sources=(), purpose=None, targets=())
        for place, made in enumerate(self._alone(RunSpec(options, tuple((source,) for source in spec.sources)))):
            kept.hold(made.largest, self._free_bytes)
            by_source.append(self._operators.take_labels(made.labels, place, kept, made.largest))
            state.completed = place + 1
            state.reached += made.reached
            state.edges += made.edges
        depth = max(map(len, by_source))
        kept.counts = np.array([np.pad(counts, (0, depth - len(counts))) for counts in by_source]).T.copy()


def _bits(sources: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return words with the bits of some sources."""
    return np.packbits(sources, bitorder="little").view(np.uint64)


def levels_of_batches(
    alone: RankLevels[Any], backend: Backend, exchange: Exchange, free_bytes: Callable[[], int]
) -> BatchLevels:
    """Return the levels of the batches of a rank that runs the loop for one source as well.

    Args:
        alone: what runs the levels of one source, of any layout; on a CPU its team shares the rank's rows.
        free_bytes: returns the bytes that labels may still take.
    """

    if backend.name == "cpu":
        # Few graphs have batches, so that the first batch compiles.
        compiling.prepare(NEEDED)

    def traverse(specs: RunSpec) -> Iterator[LoneTraversal]:
        for spec in specs:
            loop = LevelLoop(alone, spec, counted=False)
            loop.run()
            yield LoneTraversal(loop.labels.distances, loop.state.level, loop.state.reached, loop.state.edges)

    in_edges, partition, xp = alone.scratch.frontier_bits is not None, alone.scratch.partition, backend.xp
    together, zeros = partition.striped, zeros_in_lines if xp is np else xp.zeros

    def place(part: Any) -> Placement:
        scratch = BatchScratch(part, xp, zeros, in_edges=in_edges, together=together)
        operators = operators_of(backend, alone.scratch.team)
        words = OwnWords(scratch) if part.stripe.p == 1 else PackedWords(scratch, operators, exchange)
        return Placement(scratch, operators, words)

    return BatchLevels(place(partition), place, exchange, free_bytes, traverse, together=together)


def operators_of(backend: Backend, team: Team | None = None) -> BatchOperators:
    """Return operators of a backend's device, for one scratch; on a CPU a team shares the rows."""
    if backend.name == "cpu":
        from dbfs_workers.features.batches.on_cpu import CpuBatch

        return CpuBatch(team)
    from dbfs_workers.features.batches.on_gpu import CudaBatch
    from dbfs_workers.search.cuda.backend import CudaBackend

    assert isinstance(backend, CudaBackend)
    return CudaBatch(backend.xp, backend.frontier_edges)
