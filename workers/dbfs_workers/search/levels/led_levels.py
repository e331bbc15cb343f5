"""Led levels: rank 0 runs small levels for all ranks of a host, and the other ranks sleep meanwhile.

A level of some hundred vertices takes a core some microseconds. Shared among ranks, each level also has a crossing: a
microsecond if every rank has a core to itself, and some hundred with more ranks than cores, or with other programs on
them. So rank 0 *leads*: it reads the rows of all ranks, which it copies once (``partition.shared_rows``).

Led levels are one crossing at which rank 0 arrives last:

1. Each rank writes its part of the frontier into its bin, and a copy of its visited bits into its slice.
2. All ranks but rank 0 arrive, and sleep. Rank 0 waits for them, and then has the bodies of all ranks for itself.
3. Rank 0 runs the levels, and appends each discovery to the log of its owner, in the place of the owner's bins.
4. Rank 0 arrives. Its counts are the traversal's new state. Every rank replays its log: labels, visited bits and the
   next frontier.

All ranks choose led levels by the same sums of a crossing, and by the size that rank 0 wants (``led_size``). Rank 0
alone decides when they end.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.levels import led_size
from dbfs_workers.search.levels.kernels import led as kernels
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import State, bound_frontier, is_small
from dbfs_workers.search.levels.stepper import StripeWork, elapsed
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.partition.partition import Csr
from dbfs_workers.search.partition.shared_rows import KIND
from dbfs_workers.search.reports import TIME_FIELDS
from dbfs_workers.search.reports.crossings import Led, of_ranks

# Most edges of a level that is led, estimated by the largest degree: a level of hubs is no small one.
_MOST_EDGES = 1 << 16
_PHASE = "led top-down"


class LedLevels:
    """A ``Stepper``: a rank's part in led levels.

    Args:
        working: what the rank's levels work on.
        exchange: the rank's end of the exchange.
        free_bytes: returns the bytes of memory that this process may still take.

    Attributes:
        leads: whether this rank is the leader.
    """

    def __init__(self, working: StripeWork, exchange: SharedMemoryExchange, free_bytes: Callable[[], int]) -> None:
        self._working, self._exchange, self._free_bytes = working, exchange, free_bytes
        exchange.show_rows(working.scratch.rows_token)
        self.leads = exchange.rank == 0

    def wanted(self) -> int:
        """Return the most vertices of a led level that this rank wants in the next traversal.

        0 if peers can't map its rows.
        """
        exchange = self._exchange
        if self._working.scratch.rows_token is None:
            return 0
        # The frontier has to fit in a rank's bins.
        return min(exchange.led_size or led_size.first_size(exchange.p), exchange.segment.log_words // 2)

    def agree(self, state: State, wanted: Sequence[int]) -> None:
        """Have small levels led, of the size that rank 0 wants, if the rows of all ranks can be mapped.

        Args:
            state: the traversal that begins.
            wanted: by rank, what ``wanted`` returned.
        """
        if all(wanted):
            state.led_vertices, log_words = wanted[0], self._exchange.segment.log_words
            # The discoveries of a level have to fit in an empty log, beside a mark.
            fits = log_words > self._working.scratch.partition.stripe.n_local
            state.led_edges = _MOST_EDGES if fits else min(_MOST_EDGES, log_words - 1)
        else:
            # After an update the copied rows would take memory for nothing.
            self._exchange.host_rows.close()

    def learn(self, state: State, table: LevelTable) -> None:
        """Choose the size of the next traversal's led levels, as the leader, by the levels of this one, some led."""
        rows = table.rows()
        levels, led = rows["levels"], rows["led"] == rows["levels"]
        # A row may sum up levels of both kinds, or bottom-up levels. It tells nothing of either kind.
        alike = (led | (rows["led"] == 0)) & (rows["bottom_up"] == 0)
        # In levels that are not led, the leader counts its own part.
        frontier = rows["frontier"] * np.where(led, 1, self._exchange.p)
        times = np.sum([rows[name] for name in TIME_FIELDS], axis=0)
        self._exchange.led_size = led_size.next_size(
            state.led_vertices, levels[alike], frontier[alike], times[alike], led[alike]
        )

    def run(self, state: State, table: LevelTable) -> None:
        """Take part in levels led by rank 0, which counts them for all ranks. There may be none."""
        scratch, exchange = self._working.scratch, self._exchange
        reached, first = state.reached, state.level
        exchange.slice()[:] = scratch.own_visited
        exchange.bin_rows[: scratch.frontier.size] = scratch.frontier
        if self.leads:
            self._lead(state, table)
            # The levels, and the state of the traversal that all ranks have in common.
            edges = state.expanded_edges, state.unexplored_edges
            counts = Led(state.level - first, state.frontier, *edges, measured=state.measured)
        else:
            # The levels take long, and the leader needs a core.
            exchange.park()
            counts = Led(vertices=scratch.frontier.size)
        exchange.cross(first, _PHASE, counts, sliced=False)
        levels, found, state.expanded_edges, state.unexplored_edges, measured = of_ranks(Led, exchange.gathered)[0]
        state.measured = measured > 0
        if not self.leads:
            state.level += levels
            table.skip(levels)
        state.reached = reached + self._replay(first, levels)
        state.led_levels += levels
        # The leader has counted levels that the other ranks have not seen.
        state.small = 0
        if levels:
            bound_frontier(state, found)
            # A full log ends led levels too. Then the next level is led again.
            state.led = is_small(state)
        else:
            state.led, state.led_vertices = False, 0
        elapsed(state)

    def _lead(self, state: State, table: LevelTable) -> None:
        """Run levels for all ranks. There are none if the rows of the ranks can't be copied."""
        exchange, scratch, segment = self._exchange, self._working.scratch, self._exchange.segment
        first = state.level
        arrived = of_ranks(Led, exchange.await_peers(first, _PHASE))
        try:
            adjacency, copied = self._host_rows()
        except ExchangeUnavailableError:
            return
        if copied:
            # ``learn`` compares the times of levels, and the copy's time is not theirs.
            elapsed(state)
        state.number = exchange.number
        stripe, predecessors = scratch.partition.stripe, self._working.labels.predecessors is not None
        memory = kernels.Memory(kernel_rows(adjacency.rows), *self._joined(state, arrived), scratch.visited)
        marked = np.full(exchange.p, -1, np.int64)
        logs = kernels.Logs(segment.log_words, marked, first, predecessors, stripe.n_local, 1 / stripe.n_local)
        ended = False
        while not ended:
            rows = table.room(kernels.LEVELS)
            ended = kernels.led_levels(memory, logs, exchange.kernel_arguments, state.record, rows)
            table.add(state.done)
            exchange.look(state.level, _PHASE)

    def _replay(self, first: int, levels: int) -> int:
        """Replay this rank's log of led levels; return the number of vertices that are labelled."""
        if not levels:
            return 0
        exchange, scratch, labels = self._exchange, self._working.scratch, self._working.labels
        rows, parents = (part[: exchange.log_end] for part in exchange.segment.log(exchange.rank))
        discovered, queued = kernels.replay(
            rows,
            parents,
            first,
            first + levels - 1,
            scratch.own_visited,
            *labels.arrays,
            scratch.next_queue,
        )
        scratch.advance(queued)
        return int(discovered)

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

    def _joined(self, state: State, arrived: Sequence[Led]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Join the ranks' frontiers and visited bits; return two queues, the first one with the frontier."""
        exchange, scratch = self._exchange, self._working.scratch
        stripe = scratch.partition.stripe
        most = kernels.HYSTERESIS * (state.led_edges + state.led_vertices)
        even, odd = (np.empty(most, np.uint32) for _ in (0, 1))
        end = 0
        parity = (exchange.crossing + 1) & 1
        for rank in range(exchange.p):
            size = scratch.frontier.size if rank == exchange.rank else arrived[rank].vertices
            first = np.uint32(rank * stripe.n_local)
            np.add(exchange.segment.rows(rank, parity)[:size], first, out=even[end : end + size])
            end += size
            own = slice(rank * stripe.words_local, (rank + 1) * stripe.words_local)
            kernels.join(exchange.segment.slices(rank, parity), scratch.visited[own])
        state.queue, state.size = 0, end
        return even, odd
