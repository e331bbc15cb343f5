"""``dbfs bench calls``, ``gang``, ``levels`` and ``kernels``: parts of the system, on a local cluster."""

from __future__ import annotations

from collections.abc import Sequence

import click

from benchmarks.cli.common import connect_workers, ranks_option
from dbfs.building.build import ORDERS
from dbfs.cli.common import connect, json_option, print_results
from dbfs_workers.backends import BACKENDS


@click.command()
@ranks_option
@click.option("--times", type=click.IntRange(1), default=50, show_default=True, help="Number of runs to time.")
@json_option
def gang(ranks: int, times: int, as_json: bool) -> None:
    """Measure the cost of starting a gang.

    The benchmark times a resident run, from call to result, on a graph without edges.

    Example: dbfs bench gang --ranks 4
    """
    from benchmarks.gang import bench_gang

    with connect(None, ranks) as client:
        costs = [bench_gang(client, ranks, exchange, times) for exchange in ("shared_memory", "tcp")]
    rows = [(c.exchange, f"{min(c.milliseconds):.2f}", f"{c.median:.2f}", f"{max(c.milliseconds):.2f}") for c in costs]
    print_results(
        f"Round trip of a gang, {ranks} ranks",
        ("exchange", "min ms", "median ms", "max ms"),
        rows,
        costs,
        as_json=as_json,
    )


@click.command()
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator.")
@click.option("--order", type=click.Choice(ORDERS), default="degree", show_default=True, help="Order of the vertices.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of workers.")
@click.option("--backend", type=click.Choice(BACKENDS), default="cpu", show_default=True, help="Device of the workers.")
@click.option("--times", type=click.IntRange(5), default=100, show_default=True, help="Number of calls to time.")
@click.option("--batch", type=click.IntRange(2), default=64, show_default=True, help="Traversals of a batch.")
@json_option
def calls(graph: str, order: str, ranks: int, backend: str, times: int, batch: int, as_json: bool) -> None:
    """Measure the time of a call beyond its traversal, and where that time goes.

    The table has medians in milliseconds for each traversal: of calls of bfs, and of batches by bfs_many. A plain Dask
    call to a worker is measured for comparison.

    Example: dbfs bench calls --ranks 4
    """
    from benchmarks.calls import bench_calls

    with connect_workers(None, ranks, backend, "auto") as client:
        costs = list(bench_calls(client, graph, ranks, times, batch, order))
    columns = ("what", "call", "client", "wire", "leader", "rank's work", "traversal", "above it", "in plain calls")
    rows = [
        (
            c.what,
            *(f"{ms:.3f}" for ms in (c.call, c.client, c.wire, c.leader, c.rank_work, c.traversal, c.above)),
            f"{c.above / c.plain_call:.2f}",
        )
        for c in costs
    ]
    title = f"{graph} by {order}, {ranks} ranks on {backend}; a plain Dask call takes {costs[0].plain_call:.3f} ms"
    print_results(title, columns, rows, costs, as_json=as_json)


@click.command()
@ranks_option
@click.option(
    "--levels",
    type=click.IntRange(8),
    default=64,
    show_default=True,
    help="Levels that the taskgraph engine runs; the resident engine runs 2000.",
)
@json_option
def levels(ranks: int, levels: int, as_json: bool) -> None:
    """Measure the cost of a level in each engine, on a path graph.

    Example: dbfs bench levels --ranks 4
    """
    from benchmarks.levels import bench_levels

    with connect(None, ranks) as client:
        costs = list(bench_levels(client, ranks, levels))
    rows = [(c.way, str(c.ranks), f"{c.milliseconds:.3f}", f"{c.ratio:.4f}") for c in costs]
    print_results(
        "A level of a path graph", ("engine and way", "ranks", "ms per level", "ratio"), rows, costs, as_json=as_json
    )


@click.command()
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator or a file.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of workers.")
@click.option(
    "--sources",
    type=click.IntRange(1),
    default=9,
    show_default=True,
    help="Number of random sources; 1 takes vertex 0 instead.",
)
@click.option(
    "--order",
    "orders",
    type=click.Choice(ORDERS),
    multiple=True,
    default=ORDERS,
    show_default=True,
    help="Internal order of the vertices; may be repeated.",
)
@json_option
def kernels(graph: str, ranks: int, sources: int, orders: Sequence[str], as_json: bool) -> None:
    """Measure traversals of a graph, next to SciPy's.

    dbfs and SciPy traverse the same graph from the same sources, one after the other.

    Example: dbfs bench kernels --graph kronecker:scale=18 --ranks 2
    """
    from benchmarks.kernels import bench_kernels

    with connect(None, ranks) as client:
        times = list(bench_kernels(client, graph, ranks, sources, orders))
    rows = [(t.way, f"{t.levels:.2f}", f"{t.call:.2f}", f"{t.ratio:.1f}") for t in times]
    title = f"{graph}, {ranks} ranks, {sources} source{'s' * (sources > 1)}, medians"
    print_results(title, ("implementation", "levels ms", "call ms", "SciPy / call"), rows, times, as_json=as_json)
