"""Two vertices: searches from both ends beside traversals that end at the target, many pairs at once, and a service."""

import asyncio
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from types import ModuleType
from typing import Annotated, Any, Final

import click
import httpx
import numpy as np

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, seconds_of
from dbfs.assembly import Graph

EACH_SECOND: Final = 2
"""Pairs that a client of the service asks for a second."""


@dataclass(frozen=True)
class PairCost:
    """Times of calls for random pairs, in milliseconds.

    Attributes:
        call: the call.
        calls: number of calls.
        middle, average, worst: the median, the mean and the largest.
        share: the mean by that of a traversal of the whole component.
    """

    call: Annotated[str, Column()]
    calls: int
    middle: Annotated[float, Column("median, ms", ".3f")]
    average: Annotated[float, Column("mean, ms", ".3f")]
    worst: Annotated[float, Column("largest, ms", ".3f")]
    share: Annotated[float, Column("of a\ntraversal", ".3f")]


@dataclass(frozen=True)
class ManyPairs:
    """Many pairs: in one call, and asked for one by one by many clients of a service at once.

    Attributes:
        pairs: pairs of the call.
        rate: pairs a second.
        clients: clients of the service, each of which asks for ``EACH_SECOND`` pairs a second.
        middle, late: the median and the 99th percentile of their waits, in milliseconds.
    """

    pairs: Annotated[int, Column("", ",")]
    rate: Annotated[float, Column("pairs / s", ",.0f")]
    clients: Annotated[int, Column()]
    middle: Annotated[float, Column("wait, ms", ".1f", "the median of a pair asked for by one of the clients")]
    late: Annotated[float, Column("p99, ms", ".1f")]


@click.command()
@options.graph
@options.order("given")
@options.ranks(1)
@options.backend
@options.count("--calls", 200, "Random pairs of each call.")
@options.count("--pairs", 10_000, "Random pairs of one call.")
@options.count("--clients", 200, "Clients of the service.")
@options.count("--seconds", 10, "Duration of the service.")
@options.json
def paths(
    graph: str,
    order: str,
    ranks: int,
    backend: str,
    calls: int,
    pairs: int,
    clients: int,
    seconds: int,
    file: str | None,
) -> None:
    """Measure distances and paths between random vertices.

    Distances are compared with those of traversals. The vertices have at least one edge.

    Example: dbfs bench paths --graph road.gr.xz --pairs 100
    """
    with (
        Results("paths", file) as results,
        connect(ranks, backend, processes=ranks > 1) as client,
        dbfs.load(graph, client=client, ranks=ranks, order=order, in_edges=True, name="benchmark") as loaded,
    ):
        results.take("calls", bench_pairs(loaded, calls), f"{graph} by {order}, {ranks} ranks")
        results.take("pairs", [bench_many(loaded, pairs, clients, seconds)], "Many pairs")


def bench_pairs(graph: Graph, count: int) -> Iterator[PairCost]:
    """Measure each call with the same random pairs."""
    ends = np.array(_random_pairs(graph, count), object)
    ways: dict[str, Callable[[Any, Any], int]] = {
        "traversal": lambda source, _: graph.bfs(source).depth,
        "bfs(targets=)": lambda source, target: _to_target(graph, source, target),
        "distance": graph.distance,
        "path": lambda source, target: len(graph.path(source, target)) - 1,
    }
    whole, found = 0.0, dict[str, list[int]]()
    for name, call in ways.items():
        call(*ends[0])
        timed = [seconds_of(call, source, target) for source, target in ends]
        times, found[name] = [1e3 * seconds for seconds, _ in timed], [answer for _, answer in timed]
        whole = whole or mean(times)
        yield PairCost(name, count, median(times), mean(times), max(times), mean(times) / whole)
    assert found["bfs(targets=)"] == found["distance"] == found["path"]


def bench_many(graph: Graph, pairs: int, clients: int, duration: int) -> ManyPairs:
    """Measure a call with many pairs, and a service with many clients."""
    some = _random_pairs(graph, pairs)
    graph.pair_distances(some[:100])
    seconds, found = seconds_of(graph.pair_distances, some)
    assert found[0] == graph.distance(*some[0])
    waits = asyncio.run(_serve(graph.gang.client.scheduler.address, graph.name, some, clients, duration))
    return ManyPairs(pairs, pairs / seconds, clients, 1e3 * median(waits), 1e3 * float(np.quantile(waits, 0.99)))


def _random_pairs(graph: Graph, count: int) -> list[tuple[Any, Any]]:
    known = graph.sample_sources(min(2 * count, graph.n // 2))
    drawn = np.random.default_rng(1).integers(0, len(known), (count, 2)).tolist()
    return [(known[source], known[target]) for source, target in drawn]


def _to_target(graph: Graph, source: Any, target: Any) -> int:
    result = graph.bfs(source, targets=target)
    return -1 if source != target and result.farthest is None else result.depth


async def _serve(address: str, name: str, pairs: list[tuple[Any, Any]], clients: int, duration: int) -> list[float]:
    """Ask the web service of the examples for pairs, without a network; return the clients' waits in seconds."""
    waits: list[float] = []

    service = _example().create_app(address, name)

    async def ask(browser: httpx.AsyncClient, number: int) -> None:
        # Not all at once.
        await asyncio.sleep(number / clients / EACH_SECOND)
        for at in range(EACH_SECOND * duration):
            began = time.perf_counter()
            source, target = pairs[(number + at * clients) % len(pairs)]
            answer = await browser.get("/distance", params={"from": source, "to": target})
            answer.raise_for_status()
            waited = time.perf_counter() - began
            waits.append(waited)
            await asyncio.sleep(max(0.0, 1 / EACH_SECOND - waited))

    async with service.router.lifespan_context(service):
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://service", timeout=60) as browser:
            await asyncio.gather(*(ask(browser, number) for number in range(clients)))
    return waits


def _example() -> ModuleType:
    """Return the module of the web service."""
    file = Path(__file__).parents[1] / "examples" / "web_service" / "app.py"
    spec = importlib.util.spec_from_file_location("web_service", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
