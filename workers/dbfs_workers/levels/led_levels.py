"""Led levels: rank 0 runs small levels for all ranks of a host, and the other ranks sleep meanwhile.

A level of some hundred vertices takes a core some microseconds. Shared among ranks, each level also has a crossing: a
microsecond if every rank has a core to itself, and some hundred with more ranks than cores, or with other programs on
them. So rank 0 *leads*: it reads the rows of all ranks, which it copies once (``storage.shared_rows``).

Led levels are one crossing at which rank 0 arrives last:

1. Each rank writes its part of the frontier into its bin, and a copy of its visited bits into its slice.
2. All ranks but rank 0 arrive, and sleep. Rank 0 waits for them, and then has the bodies of all ranks for itself.
3. Rank 0 runs the levels, and appends each discovery to the log of its owner, in the place of the owner's bins.
4. Rank 0 arrives. Its counts are the traversal's new state. Every rank replays its log: labels, visited bits and the
   next frontier.

All ranks choose led levels by the same sums of a crossing, and by the size that rank 0 wants (``led_size``). Rank 0
alone decides when they end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends.protocol import Backend
from dbfs_workers.errors import ExchangeUnavailableError
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.levels import led_kernels as kernels
from dbfs_workers.levels import led_size
from dbfs_workers.levels.direction import ROWS_PER_EDGE
from dbfs_workers.levels.level_table import TableRows
from dbfs_workers.reports import COUNT_FIELDS
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Csr
from dbfs_workers.storage.scratch import Scratch
from dbfs_workers.storage.shared_rows import KIND

# Most edges of a level that is led, estimated by the largest degree: a level of hubs is no small one.
_MOST_EDGES = 1 << 16
# Led levels end before a level with so many times as many vertices or edges, so that ranks change seldom.
_HYSTERESIS = 2
_BOTTOM_UP, _FRONTIER = map(COUNT_FIELDS.index, ("bottom_up", "frontier"))
_PHASE = "led top-down"
_WITHOUT_END = 1 << 62
_NONE = np.empty(0, np.uint32)


@dataclass(frozen=True)
class LedStretch:
    """Consecutive led levels, as their leader reports them. The arrays are valid until the next levels.

    Attributes:
        counts: int64[levels, len(COUNT_FIELDS)], over all ranks.
        seconds: float64[levels, len(TIME_FIELDS)].
    """

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]


@dataclass(frozen=True)
class LedEnd:
    """The state of a traversal after led levels; the same on all ranks, except for ``discovered``.

    Attributes:
        levels: number of led levels.
        frontier: over all ranks, vertices of the frontier.
        expanded_edges: over all ranks, edges that the last level expanded.
        unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded.
        may_turn: whether a bottom-up level may pay now.
        discovered: vertices of this rank that were discovered.
    """

    levels: int
    frontier: int
    expanded_edges: int
    unexplored_edges: int
    may_turn: bool
    discovered: int


class LedLevels:
    """A rank's part in the led levels of its traversals, one after another.

    Args:
        scratch: the rank's working memory.
        exchange: the rank's end of the exchange.
        free_bytes: returns the bytes of memory that this process may still take.

    Attributes:
        leads: whether this rank is the leader.
        most_vertices: most vertices of a frontier whose level is led; see ``agree``.
        most_edges: most edges of such a frontier.
        were_run: whether any level of the traversal was led.
    """

    def __init__(self, scratch: Scratch, exchange: SharedMemoryExchange, free_bytes: Callable[[], int]) -> None:
        self._scratch, self._exchange, self._free_bytes = scratch, exchange, free_bytes
        self._labels: RankLabels
        exchange.show_rows(scratch.rows_token)
        self.leads = exchange.rank == 0
        log_words = exchange.segment.log_words
        self.most_vertices = 0
        # The discoveries of a level have to fit in an empty log, beside a mark.
        fits = log_words > scratch.partition.stripe.n_local
        self.most_edges = _MOST_EDGES if fits else min(_MOST_EDGES, log_words - 1)
        state = self._state = np.zeros(kernels.STATE, np.int64)
        state[kernels.MOST_EDGES] = _HYSTERESIS * self.most_edges
        self._least_edges = scratch.partition.stripe.n / ROWS_PER_EDGE
        self._first = 0
        self.were_run = False

    @classmethod
    def where_possible(
        cls, backend: Backend, scratch: Scratch, exchange: Exchange, free_bytes: Callable[[], int]
    ) -> "LedLevels | None":
        """Return a rank's part, for several ranks on the CPU that share memory; else None."""
        if exchange.p == 1:
            return None
        if backend.xp is np and isinstance(exchange, SharedMemoryExchange) and exchange.on_one_host:
            return cls(scratch, exchange, free_bytes)
        return None

    def begin(self, spec: TraversalSpec, labels: RankLabels, *, adaptive: bool) -> int:
        """Begin a traversal without targets; arguments as of ``TopDownLevels.begin``.

        Returns:
            The ``most_vertices`` that this rank wants: 0 if peers can't map its rows.
        """
        self._labels, exchange, state = labels, self._exchange, self._state
        state[kernels.LAST_LEVEL] = _WITHOUT_END if spec.max_depth is None else min(spec.max_depth, _WITHOUT_END)
        state[kernels.ADAPTIVE] = adaptive
        self.were_run = False
        if self._scratch.rows_token is None:
            return 0
        # The frontier has to fit in a rank's bins.
        return min(exchange.led_size or led_size.first_size(exchange.p), exchange.segment.log_words // 2)

    def agree(self, wanted: Sequence[int]) -> bool:
        """Take the size that rank 0 wants; return whether levels can be led.

        Args:
            wanted: by rank, what ``begin`` returned.
        """
        self.most_vertices = wanted[0]
        self._state[kernels.MOST_VERTICES] = _HYSTERESIS * self.most_vertices
        if all(wanted):
            return True
        # After an update the copied rows would take memory for nothing.
        self._exchange.host_rows.close()
        return False

    def learn(self, rows: TableRows) -> None:
        """Choose the size of the next traversal's led levels, as the leader, by the levels of this one, some led.

        Args:
            rows: the leader's rows of the traversal.
        """
        led = rows.led == rows.levels
        # A row that sums up led levels and others, or bottom-up ones, is of no kind.
        alike = (led | (rows.led == 0)) & (rows.counts[:, _BOTTOM_UP] == 0)
        # Of other levels the leader has counted its own part.
        frontier = rows.counts[:, _FRONTIER] * np.where(led, 1, self._exchange.p)
        times = rows.seconds.sum(axis=1)
        self._exchange.led_size = led_size.next_size(
            self.most_vertices, rows.levels[alike], frontier[alike], times[alike], led[alike]
        )

    def pays(self, frontier: int, max_degree: int, unexplored_edges: int) -> bool:
        """Return whether a level of at most ``frontier`` vertices is to be led.

        Args:
            frontier: over all ranks, vertices of the frontier; an upper bound.
            max_degree: the graph's largest degree.
            unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded.
        """
        edges = min(frontier * max_degree, unexplored_edges)
        return frontier <= self.most_vertices and edges <= self.most_edges

    def offer(self, level: int) -> None:
        """Show the leader this rank's frontier and visited bits, before the levels from ``level`` on."""
        scratch, exchange = self._scratch, self._exchange
        self._first = level
        exchange.slice()[:] = scratch.own_visited
        exchange.bin_rows[: scratch.frontier.size] = scratch.frontier

    def lead(self, max_degree: int, unexplored_edges: int, share: float, ended: float) -> Iterator[LedStretch]:
        """Run levels for all ranks, after ``offer`` and before ``finish``; yield them as they are done.

        There are none if the rows of the ranks can't be copied.

        Args:
            max_degree: the graph's largest degree.
            unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded.
            share: share of the unexplored edges that a bottom-up level is expected to look at.
            ended: when the last level ended, in seconds of ``time.perf_counter()``.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: see
                ``Exchange.cross``.
        """
        exchange, state, first = self._exchange, self._state, self._first
        arrived = exchange.await_peers(first, _PHASE)
        state[kernels.LEVEL] = state[kernels.FIRST] = first
        state[kernels.NUMBER] = exchange.number
        state[kernels.UNEXPLORED], state[kernels.MAX_DEGREE] = unexplored_edges, max_degree
        state[kernels.EXPANDED_EDGES] = state[kernels.MAY_TURN] = state[kernels.OVER] = 0
        try:
            rows, copied = self._host_rows()
        except ExchangeUnavailableError:
            return
        # A copy is no part of a level's time, by which ``learn`` compares.
        state[kernels.ENDED] = int((time.perf_counter() if copied else ended) * 1e9)
        queues = self._joined(arrived)
        scratch, segment = self._scratch, exchange.segment
        marked = np.full(exchange.p, -1, np.int64)
        counts = np.empty((kernels.LEVELS, kernels.COUNTED), np.int64)
        seconds = np.empty((kernels.LEVELS, kernels.TIMED), np.float64)
        while not state[kernels.OVER]:
            kernels.led_levels(
                *(rows.row_offsets, rows.columns, scratch.partition.stripe.n_local, scratch.visited, *queues),
                *(segment.bodies, segment.body_words, segment.log_words, self._labels.predecessors is not None),
                *(marked, exchange.bin_ends, segment.words, share, self._least_edges),
                *(state, counts.ravel(), seconds.ravel(), np.empty(2, np.int64)),
            )
            done = int(state[kernels.DONE])
            yield LedStretch(counts[:done], seconds[:done])
            exchange.look(int(state[kernels.LEVEL]), _PHASE)

    def finish(self) -> LedEnd:
        """Cross with the leader's new state, and replay this rank's log.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: see
                ``Exchange.cross``.
        """
        exchange, state, scratch = self._exchange, self._state, self._scratch
        if self.leads:
            at = (kernels.FRONTIER, kernels.EXPANDED_EDGES, kernels.UNEXPLORED, kernels.MAY_TURN)
            done = int(state[kernels.LEVEL]) - self._first
            frontier, expanded, unexplored, may_turn = (int(state[place]) for place in at)
            counts = (done, frontier, expanded, unexplored, may_turn)
        else:
            # The levels take long, and the leader needs a core.
            exchange.park()
            counts = (scratch.frontier.size, 0, 0, 0, 0)
        exchange.cross(self._first, _PHASE, counts, sliced=False)
        levels, frontier, expanded, unexplored, may_turn = exchange.gathered[0].tolist()
        self.were_run = True
        discovered = 0
        if levels:
            rows, parents = (part[: exchange.log_end] for part in exchange.segment.log(exchange.rank))
            discovered, queued = kernels.replay(
                *(rows, parents, self._first, self._first + levels - 1),
                *(scratch.own_visited, self._labels.distances),
                *(_NONE if self._labels.predecessors is None else self._labels.predecessors, scratch.next_queue),
            )
            scratch.advance(queued)
        return LedEnd(levels, frontier, expanded, unexplored, bool(may_turn), int(discovered))

    def _host_rows(self) -> tuple[Csr, bool]:
        """Return the rows of all ranks, and whether they were copied just now."""
        exchange = self._exchange
        tokens = []
        for rank in range(exchange.p):
            token = exchange.segment.read_rows(rank, KIND)
            if token is None:
                raise ExchangeUnavailableError(f"rank {rank} has withdrawn its rows")
            tokens.append(token)
        return exchange.host_rows.copied(tokens, self._free_bytes)

    def _joined(self, arrived: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Join the ranks' frontiers and visited bits; return two queues, the first one with the frontier."""
        exchange, state, scratch = self._exchange, self._state, self._scratch
        stripe = scratch.partition.stripe
        even, odd = (np.empty(int(state[kernels.MOST_EDGES] + state[kernels.MOST_VERTICES]), np.uint32) for _ in (0, 1))
        end = 0
        parity = (exchange.crossing + 1) & 1
        for rank in range(exchange.p):
            size = scratch.frontier.size if rank == exchange.rank else int(arrived[rank, 0])
            first = np.uint32(rank * stripe.n_local)
            np.add(exchange.segment.rows(rank, parity)[:size], first, out=even[end : end + size])
            end += size
            own = slice(rank * stripe.words_local, (rank + 1) * stripe.words_local)
            kernels.join(exchange.segment.slices(rank, parity), scratch.visited[own])
        state[kernels.QUEUE], state[kernels.FRONTIER] = 0, end
        return even, odd
