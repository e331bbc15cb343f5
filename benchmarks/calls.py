"""The cost of a call: the time from the client's call to the result, split by the places where it goes.

Under a lease (docs/design/leases.md) a call passes the client, a line, rank 0 and the other ranks. A plain Dask call to
a worker, measured in the same run, is the scale.
"""

import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import distributed
import numpy as np

import dbfs
from dbfs.cluster.deadline import of_call
from dbfs.cluster.workers import joined_workers
from dbfs.graph.graph import Graph
from dbfs.service.client import ServiceClient
from dbfs.service.runs import RunSender
from dbfs_workers.spec import RunSpec, TraversalSpec

# Batches measured. On shared hosts some take twice as long as others.
BATCHES: Final = 11


@dataclass(frozen=True)
class CallCost:
    """Times of a call or of a batch, in milliseconds: medians, a traversal.

    Attributes:
        what: the call, and how often it was made.
        ranks: number of ranks.
        call: from the client's call to the result.
        client: of that, outside of the line: checks, specs and results on the client.
        wire: of that, the line to rank 0 and back.
        leader: of that, the addition to rank 0's own part: waking the other ranks and waiting for their reports.
        rank_work: of that, rank 0's own part without the traversal: preparing, launching, reporting.
        traversal: of that, the traversal: device time on GPUs, the levels on CPUs.
        above: the call without the traversal.
        plain_call: a plain Dask call from the client to a worker (``identity``).
    """

    what: str
    ranks: int
    call: float
    client: float
    wire: float
    leader: float
    rank_work: float
    traversal: float
    above: float
    plain_call: float


def bench_calls(
    client: distributed.Client, spec: str, ranks: int, times: int, batch: int, order: str
) -> Iterator[CallCost]:
    """Measure an empty gang, single calls and batches; labels are not fetched.

    Args:
        client: client of a cluster with at least ``ranks`` workers.
        spec: the generator's spec of the graph.
        ranks: number of ranks.
        times: number of single calls.
        batch: traversals of a batch.
        order: internal order of the vertices.
    """
    plain = _plain_calls(client, times)
    nothing = np.empty(0, np.int64)
    with dbfs.load(dbfs.from_arrays(nothing, nothing, n=ranks), client=client, ranks=ranks) as empty:
        yield _single(empty, f"{times} calls of an empty gang", [0] * times, plain)
    with dbfs.load(spec, client=client, ranks=ranks, order=order) as graph:
        sources = graph.sample_sources(min(times, batch))
        yield _single(graph, f"{times} calls", (sources * times)[:times], plain)
        yield _batch(graph, f"batches of {batch}", (sources * batch)[:batch], plain)


def _plain_calls(client: distributed.Client, times: int) -> float:
    """Return the median milliseconds of a call of ``identity`` on a worker."""
    address = next(iter(joined_workers(client)))
    worker = client.rpc(address)
    taken = []
    for _ in range(times + 5):
        began = time.perf_counter()
        client.sync(worker.identity)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[5:]) * 1e3


def _single(graph: Graph, what: str, sources: Sequence[int], plain: float) -> CallCost:
    for source in sources[:5]:
        graph.bfs(source)
    calls, above = [], []
    for source in sources:
        began = time.perf_counter()
        result = graph.bfs(source)
        calls.append(time.perf_counter() - began)
        above.append(calls[-1] - _traversal(graph, result))
        # The release of a result is no part of the next call.
        del result
    return _cost(graph, what, 1, calls, above, _under_lease(graph, sources, 1), plain)


def _batch(graph: Graph, what: str, sources: Sequence[int], plain: float) -> CallCost:
    graph.bfs_many(sources)
    calls, above = [], []
    for _ in range(BATCHES):
        began = time.perf_counter()
        results = graph.bfs_many(sources)
        calls.append(time.perf_counter() - began)
        above.append(calls[-1] - sum(_traversal(graph, result) for result in results))
        results.clear()
    return _cost(graph, what, len(sources), calls, above, _under_lease(graph, sources, len(sources)), plain)


def _traversal(graph: Graph, result: dbfs.BFSResult) -> float:
    """Return the seconds of a traversal. On GPUs they include the reset of the state, which the kernel does."""
    reset = (result.setup_seconds or 0.0) if graph.backend == "cuda" else 0.0
    return result.seconds + reset


def _under_lease(graph: Graph, sources: Sequence[int], batch: int) -> list[tuple[float, float, float]]:
    """Send runs without results; return the seconds of each: in all, on rank 0, and of rank 0's own part."""
    sender, service = RunSender.of(graph.gang.client), ServiceClient.of(graph.gang.client)
    taken = []
    for first in range(0, len(sources), batch):
        run_id = uuid.uuid4().hex
        options = TraversalSpec(run_id, (), predecessors=False, backend=graph.backend)
        specs = RunSpec(options, tuple((source,) for source in sources[first : first + batch]))
        began = time.perf_counter()
        parts = list(sender.parts(graph.record.graph_id, specs, of_call(), None, graph.in_positions))
        seconds = time.perf_counter() - began
        taken.append((seconds, sum(part.seconds for part in parts), sum(part.rank_seconds for part in parts)))
        for index in range(len(specs)):
            service.drop(graph.record.graph_id, run_id, index)
    return taken


def _cost(
    graph: Graph,
    what: str,
    batch: int,
    calls: Sequence[float],
    above: Sequence[float],
    under_lease: Sequence[tuple[float, float, float]],
    plain: float,
) -> CallCost:
    call, over = (statistics.median(values) * 1e3 / batch for values in (calls, above))
    sent, on_leader, own = (statistics.median(values) * 1e3 / batch for values in zip(*under_lease, strict=True))
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
    )
