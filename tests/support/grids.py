"""Ranks of a 2-D partition in threads of this process."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.building.bin_store import BinStore
from dbfs_workers.features.grid.building import bin_blocks, build_blocks
from dbfs_workers.features.grid.exchange import GridExchange
from dbfs_workers.features.grid.exchange_on_gpus import MappedGridExchange, NcclGridExchange
from dbfs_workers.features.grid.grid import Grid, GridPartition
from dbfs_workers.features.grid.kernels.team_tasks import TASKS
from dbfs_workers.features.grid.levels import GridLevels, engine_fold
from dbfs_workers.features.grid.operators import GridOperators, operators_of
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.features.grid.tasks import row_degrees
from dbfs_workers.features.lab.on_grids import fold_of
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.partition.labels import LabelPool, RankLabels
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.exchanges import connect, shared_memory
from tests.support.gang import Answer
from tests.support.nccl import FakeLibrary, Messenger, Network, NumpyMessages, Stream

PATIENCE = 60.0
T = TypeVar("T")


def build(
    stripe: Stripe,
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    *,
    directed: bool,
    bottom_up: bool = True,
    hub_first: bool = False,
    cuts: int = 1,
    grid: Grid | None = None,
) -> list[GridPartition]:
    """Cut edges into ``cuts`` pieces, bin the pieces, and build the partitions; by default in the derived grid."""
    grid = grid or Grid.of(stripe.p)
    pieces = zip(np.array_split(src, cuts), np.array_split(dst, cuts), strict=True)
    options: dict[str, Any] = {"symmetrise": not directed, "bottom_up": bottom_up, "name": "test"}
    bins = [bin_blocks(*piece, stripe, grid, **options) for piece in pieces]
    stores = grid.count_stores(bottom_up=bottom_up)
    blocks = []
    for rank in range(stripe.p):
        collected = [BinStore.of(stripe, (piece[rank][store] for piece in bins)) for store in range(stores)]
        blocks.append(build_blocks(stripe, grid, rank, collected, input_edges=src.size, hub_first=hub_first))
    return [complete(stripe, grid, rank, blocks, directed=directed) for rank in range(stripe.p)]


def complete(stripe: Stripe, grid: Grid, rank: int, blocks: Sequence[Any], *, directed: bool) -> GridPartition:
    partition = GridPartition(stripe, grid, rank, blocks[rank], np.zeros(stripe.n_local, np.int64), directed)
    row = rank // grid.columns
    for peer in grid.column_of(rank):
        partition.degrees[:] += row_degrees(blocks[peer], row)
    return partition


class GridGang:
    """The ranks of a graph; each traversal runs on a thread a rank.

    Attributes:
        network: what carries the messages by NCCL.
        messenger: hands over the ends of runs by NCCL.
    """

    def __init__(
        self,
        partitions: Sequence[GridPartition],
        backend: Backend,
        operators: GridOperators,
        *,
        mapped: bool,
        by_nccl: bool,
        threads: int,
    ) -> None:
        self.stripe = stripe = partitions[0].stripe
        self.pool = ThreadPoolExecutor(stripe.p)
        self.network, self.messenger = Network(), Messenger()
        entries = partitions[0].grid.bin_entries(stripe)
        self.carriers: list[Any] = []
        if not by_nccl:
            self.carriers += shared_memory(stripe, "grid", entries)
        self.exchanges: list[GridExchange] = [
            GridExchange(carrier, stripe, backend, operators) for carrier in self.carriers
        ]
        if mapped:
            mapping = [MappedGridExchange(carrier, stripe, backend, operators, "grid") for carrier in self.carriers]
            connect(mapping)
            self.exchanges = [*mapping]
        if by_nccl:
            for rank in range(stripe.p):
                stream: Stream = []
                library = FakeLibrary(self.network, stream)
                carrier = NcclExchange(stripe, rank, self.messenger.send, library, entries)
                carrier.allocate(NumpyMessages(stripe, rank, stream))
                self.carriers.append(carrier)
                self.exchanges.append(NcclGridExchange(carrier, stripe, backend, operators))
            self.messenger.ends = dict(enumerate(self.carriers))
            self.connect_by_nccl()
        self.teams = [Team(threads, TASKS) if threads > 1 else None for _ in partitions]
        self.scratches = [
            GridScratch(partition, LabelPool(stripe.n_local, 0) if backend.xp is np else None, backend.xp)
            for partition in partitions
        ]
        for scratch, team in zip(self.scratches, self.teams, strict=True):
            scratch.team = team
        self.number = 0

    def connect_by_nccl(self) -> None:
        """Connect the ranks, as the service does when it forms the gang and after a failed run."""
        offers = [carrier.offer() for carrier in self.carriers]
        list(self.pool.map(lambda carrier: carrier.connect(offers), self.carriers))

    def on_ranks(self, work: Callable[[int], T]) -> list[T]:
        return list(self.pool.map(work, range(self.stripe.p)))

    def start(self, *specs: TraversalSpec, seconds: float = PATIENCE) -> list[Future[Any]]:
        """Start a run; return a future for each rank."""
        self.number += 1
        deadline = time.monotonic() + seconds

        def traverse(rank: int) -> Any:
            scratch, exchange = self.scratches[rank], self.exchanges[rank]
            fold = engine_fold if specs[0].purpose is None else fold_of
            levels, watch = lambda: GridLevels(scratch, exchange, fold), Watch(self.number)
            runs = loop.traverse(levels, specs, exchange.carrier, watch=watch, deadline=deadline)
            return [replace(run, labels=_on_host(run.labels)) for run in runs]

        return [self.pool.submit(traverse, rank) for rank in range(self.stripe.p)]

    def run(self, *specs: TraversalSpec) -> list[Answer]:
        futures = self.start(*specs)
        # As the service does, which begins no run before all ranks have ended the one before.
        wait(futures, PATIENCE)
        ranks = [future.result(0) for future in futures]
        return [Answer(runs) for runs in zip(*ranks, strict=True)]


@contextmanager
def gang(
    partitions: Sequence[GridPartition],
    backend: Backend | None = None,
    operators: GridOperators | None = None,
    *,
    mapped: bool = False,
    by_nccl: bool = False,
    threads: int = 1,
) -> Iterator[GridGang]:
    """Start the ranks of a graph, by default on the CPU, and close their exchange in the end.

    ``operators`` are the backend's, if left out. ``mapped`` says whether they map each other's messages, which
    processes with a GPU can, and stand-ins; ``by_nccl`` whether a stand-in for NCCL has the messages. ``threads`` of a
    rank share its large levels.
    """
    chosen = backend or backends.get("cpu")
    ranks = GridGang(
        partitions, chosen, operators or operators_of(chosen), mapped=mapped, by_nccl=by_nccl, threads=threads
    )
    try:
        yield ranks
    finally:
        ranks.pool.shutdown()
        for team in ranks.teams:
            if team is not None:
                team.close()
        for exchange in ranks.exchanges:
            if isinstance(exchange, MappedGridExchange):
                exchange.close()
            exchange.carrier.close()


def _on_host(labels: RankLabels) -> RankLabels:
    parents = labels.predecessors
    return RankLabels(on_host(labels.distances), None if parents is None else on_host(parents))
