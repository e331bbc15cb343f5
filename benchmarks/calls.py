"""The cost of a call: the time from the client's call to the result, split by the places where it goes.

In a turn that the client holds (docs/design/turns.md) a call passes the client, a line, rank 0 and the other ranks. A
plain Dask call to a worker, measured in the same run, is the scale.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import click
import dask
import distributed
import numpy as np

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, milliseconds, seconds_of
from dbfs.assembly import Graph
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import joined_workers
from dbfs.service.client import ServiceClient
from dbfs.service.runs import RunSender
from dbfs_workers.base.spec import RunSpec, TraversalSpec

# Batches measured. On shared hosts some take twice as long as others.
BATCHES: Final = 11
# Calls before those that are measured.
_WARM_UP = 5


@dataclass(frozen=True)
class CallCost:
    """Times of a call or of a batch, in milliseconds: medians, a traversal.

    Attributes:
        what: the call, and how often it was made.
        call: from the client's call to the result.
        client: of that, outside of the line: checks, specs and results on the client.
        wire: of that, the line to rank 0 and back.
        leader: of that, the addition to rank 0's own part: waking the other ranks and waiting for their reports.
        rank_work: of that, rank 0's own part without the traversal: preparing, launching, reporting.
        traversal: of that, the traversal: device time on GPUs, the levels on CPUs.
        above: the call without the traversal.
        plain_call: a plain Dask call from the client to a worker (``identity``).
        in_plain_calls: ``above`` divided by ``plain_call``.
    """

    what: Annotated[str, Column()]
    ranks: int
    call: Annotated[float, Column("", ".3f")]
    client: Annotated[float, Column("", ".3f")]
    wire: Annotated[float, Column("", ".3f")]
    leader: Annotated[float, Column("", ".3f")]
    rank_work: Annotated[float, Column("rank's\nwork", ".3f")]
    traversal: Annotated[float, Column("traversal", ".3f")]
    above: Annotated[float, Column("above it", ".3f")]
    plain_call: Annotated[float, Column("plain\ncall", ".3f", "a Dask call to a worker")]
    in_plain_calls: Annotated[float, Column("in plain\ncalls", ".2f")]


@dataclass(frozen=True)
class GangCost:
    """Round trips of the resident engine over one exchange, in milliseconds; labels are not fetched."""

    exchange: Annotated[str, Column()]
    ranks: int
    least: Annotated[float, Column("least ms", ".2f")]
    median: Annotated[float, Column("median ms", ".2f")]
    most: Annotated[float, Column("most ms", ".2f")]


@click.command()
@options.ranks(4)
@options.count("--times", 50, "Number of runs to time.")
@options.json
def gang(ranks: int, times: int, file: str | None) -> None:
    """Measure the cost of starting a gang.

    The benchmark times a resident run, from call to result, on a graph without edges.

    Example: dbfs bench gang --ranks 4
    """
    with Results("gang", file) as results, connect(ranks) as client:
        costs = (bench_gang(client, ranks, exchange, times) for exchange in ("shared_memory", "tcp"))
        results.take("costs", costs, f"Round trip of a gang, {ranks} ranks")


def bench_gang(client: distributed.Client, ranks: int, exchange: str, times: int) -> GangCost:
    """Time traversals of a graph with one vertex for each rank and no edges."""
    with dask.config.set({"dbfs.exchange": exchange}), _without_edges(client, ranks) as graph:
        taken = [seconds_of(graph.bfs, 0)[0] for _ in range(times + _WARM_UP)][_WARM_UP:]
    return GangCost(exchange, ranks, min(taken) * 1e3, milliseconds(taken), max(taken) * 1e3)


def _without_edges(client: distributed.Client, ranks: int) -> Graph:
    nothing = np.empty(0, np.int64)
    return dbfs.load(dbfs.from_arrays(nothing, nothing, n=ranks), client=client, ranks=ranks)


@click.command()
@options.graph
@options.order("degree")
@options.ranks(2)
@options.backend
@options.count("--times", 100, "Number of calls to time.", least=5)
@options.count("--batch", 64, "Traversals of a batch.", least=2)
@options.json
def calls(graph: str, order: str, ranks: int, backend: str, times: int, batch: int, file: str | None) -> None:
    """Measure the time of a call beyond its traversal, and where that time goes.

    The table has medians in milliseconds for each traversal: of calls of bfs, and of batches by bfs_many. A plain Dask
    call to a worker is measured for comparison.

    Example: dbfs bench calls --ranks 4
    """
    with Results("calls", file) as results, connect(ranks, backend) as client:
        costs = bench_calls(client, graph, ranks, times, batch, order)
        results.take("costs", costs, f"{graph} by {order}, {ranks} ranks on {backend}, ms")


def bench_calls(
    client: distributed.Client, spec: str, ranks: int, times: int, batch: int, order: str
) -> Iterator[CallCost]:
    """Measure an empty gang, single calls and batches; labels are not fetched."""
    address = next(iter(joined_workers(client)))
    asked = [seconds_of(client.sync, client.rpc(address).identity)[0] for _ in range(times + _WARM_UP)]
    plain = milliseconds(asked[_WARM_UP:])
    with _without_edges(client, ranks) as empty:
        yield _measure(empty, f"{times} calls of an empty gang", [[0]] * times, plain)
    with dbfs.load(spec, client=client, ranks=ranks, order=order) as graph:
        sources = graph.sample_sources(min(times, batch))
        singles = [[source] for source in (sources * times)[:times]]
        yield _measure(graph, f"{times} calls", singles, plain)
        yield _measure(graph, f"batches of {batch}", [(sources * batch)[:batch]] * BATCHES, plain)


def _measure(graph: Graph, what: str, runs: Sequence[Sequence[int]], plain: float) -> CallCost:
    """Measure calls of ``bfs`` for runs of one source, of ``bfs_many`` for others."""
    batch = len(runs[0])

    def traverse(sources: Sequence[int]) -> list[dbfs.BFSResult]:
        return [graph.bfs(sources[0])] if batch == 1 else graph.bfs_many(sources)

    for sources in runs[:_WARM_UP]:
        traverse(sources)
    taken = []
    for sources in runs:
        seconds, results = seconds_of(traverse, sources)
        taken.append((seconds, seconds - sum(_traversal(graph, result) for result in results)))
        # The release of results is no part of the next call.
        results.clear()
    call, over = (milliseconds(values, batch) for values in zip(*taken, strict=True))
    in_turn = zip(*(_in_own_turn(graph, sources) for sources in runs), strict=True)
    sent, on_leader, own = (milliseconds(values, batch) for values in in_turn)
    return CallCost(
        what=what,
        ranks=graph.ranks,
        call=call,
        client=call - sent,
        wire=sent - on_leader,
        leader=on_leader - own,
        rank_work=own - (call - over),
        traversal=call - over,
        above=over,
        plain_call=plain,
        in_plain_calls=over / plain,
    )


def _traversal(graph: Graph, result: dbfs.BFSResult) -> float:
    """Return the seconds of a traversal. On GPUs they include the reset of the state, which the kernel does."""
    reset = (result.setup_seconds or 0.0) if graph.backend == "cuda" else 0.0
    return result.seconds + reset


def _in_own_turn(graph: Graph, sources: Sequence[int]) -> tuple[float, float, float]:
    """Send a run without results; return its seconds: in all, on rank 0, and on rank 0's own rows."""
    sender, service = RunSender.of(graph.gang.client), ServiceClient.of(graph.gang.client)
    run_id = uuid.uuid4().hex
    options = TraversalSpec(run_id, (), predecessors=False, backend=graph.backend)
    specs = RunSpec(options, tuple((source,) for source in sources))
    sending = sender.send(graph.record.graph_id, specs, of_call(), None)
    seconds, answers = seconds_of(lambda: list(sending))
    for index in range(len(specs)):
        service.drop(graph.record.graph_id, run_id, index)
    return seconds, sum(answer.seconds for answer in answers), sum(answer.rank_seconds for answer in answers)
