"""A stepper is anything with ``run``: one written here in plain Python takes the place of the top-down levels."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.rank_levels import StripeLevels
from dbfs_workers.search.levels.state import TOP_DOWN, State, end_level
from dbfs_workers.search.levels.stepper import StripeWork
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Found
from tests.support import graphs
from tests.support.answers import assert_scipys, every_spec
from tests.support.exchanges import shared_memory
from tests.support.gang import PATIENCE, Answer, levels_of, partitions, spec


class Toy:
    """A top-down level, edge by edge. The bins hold a level."""

    def __init__(self, working: StripeWork) -> None:
        self.working = working
        self.levels = 0

    def run(self, state: State, table: LevelTable) -> None:
        work, scratch, exchange, row = self.working, self.working.scratch, self.working.exchange, table.row()
        state.size, n_local, rows = scratch.frontier.size, scratch.rows.starts.size, scratch.rows
        found: list[list[tuple[int, int]]] = [[] for _ in range(exchange.p)]
        for vertex in scratch.frontier.tolist():
            for u in rows.columns[rows.starts[vertex] : rows.ends[vertex]].tolist():
                row.edges += 1
                if visit(scratch.visited, u):
                    found[u // n_local].append((u % n_local, scratch.first_id + vertex))
        own, found[exchange.rank] = found[exchange.rank], []
        for owner, of_owner in enumerate(found):
            for place, entry in enumerate(of_owner, owner * n_local):
                exchange.bin_rows[place], exchange.bin_parents[place] = entry
            exchange.bin_ends[owner] = len(of_owner)
        row.own, row.sent = len(own), sum(map(len, found))
        counts = Found(row.own + row.sent, row.edges, knowing=work.knows_witness(state))
        found_by_all = exchange.cross(state.level, "toy", counts, sliced=False)
        state.found, state.inspected = found_by_all.vertices, found_by_all.edges
        state.measured = state.measured or found_by_all.knowing > 0
        for locals_, parents in exchange.incoming():
            row.received += locals_.size
            entries = zip(locals_.tolist(), (locals_ if parents is None else parents).tolist(), strict=True)
            own += [entry for entry in entries if visit(scratch.own_visited, entry[0])]
        for place, (local, parent) in enumerate(own):
            scratch.next_queue[place] = local
            work.labels.distances[local] = state.level + 1
            if work.labels.predecessors is not None:
                work.labels.predecessors[local] = parent
        scratch.advance(len(own))
        end_level(state, row, len(own))
        table.add()
        self.levels += 1


def visit(bitmap: NDArray[np.uint32], place: int) -> bool:
    """Set a bit; return whether it was not set before."""
    word, bit = place // 32, np.uint32(1 << place % 32)
    new = not bitmap[word] & bit
    bitmap[word] |= bit
    return new


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_a_toy_has_scipys_labels(name: str, p: int, directed: bool) -> None:
    arrays = n, src, dst = graphs.GRAPHS[name]()
    stripe, specs, deadline = Stripe(n, p), every_spec([n // 3]), time.monotonic() + PATIENCE
    ends, toys = shared_memory(stripe, entries=stripe.n_local), []
    parts = partitions(n, src, dst, p, directed=directed)

    def traverse(rank: int) -> Any:
        def levels() -> StripeLevels:
            made: StripeLevels = levels_of(Scratch(parts[rank], np), ends[rank])()
            toys.append(Toy(made.working))
            made.steppers[TOP_DOWN] = toys[-1]
            return made

        return loop.traverse(levels, specs, ends[rank], watch=loop.Watch(1), deadline=deadline)

    with ThreadPoolExecutor(p) as pool:
        ranks = list(pool.map(traverse, range(p)))
    for end in ends:
        end.close()
    assert_scipys(specs, [Answer(runs) for runs in zip(*ranks, strict=True)], arrays, stripe, directed=directed)
    assert all(toy.levels for toy in toys)


def test_targets_and_depth_end_a_toy_as_any_stepper() -> None:
    """What ends a traversal is not the stepper's to say."""
    n, src, dst = graphs.GRAPHS["path"]()
    (end,), (part,) = shared_memory(Stripe(n, 1)), partitions(n, src, dst, 1, directed=False)
    made: StripeLevels = levels_of(Scratch(part, np), end)()
    made.steppers[TOP_DOWN] = toy = Toy(made.working)
    specs = [spec(0, targets=(7,)), spec(0, max_depth=5)]
    loop.traverse(lambda: made, specs, end, watch=loop.Watch(1), deadline=time.monotonic() + PATIENCE)
    end.close()
    assert toy.levels == 7 + 5
