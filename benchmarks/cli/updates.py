"""``dbfs bench updates``: batches of changes, traversals on pages next to a CSR, and repairs of a result."""

from __future__ import annotations

from dataclasses import asdict

import click

from benchmarks.updates import bench_repairs, bench_updates
from dbfs.cli.common import connect, json_option, print_json, print_results
from dbfs_workers.backends import BACKENDS


@click.command()
@click.option("--scale", type=click.IntRange(5), default=18, show_default=True, help="Log2 of the number of vertices.")
@click.option("--edges", type=click.IntRange(1), default=1_000_000, show_default=True, help="Edges of a batch.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of workers.")
@click.option("--times", type=click.IntRange(1), default=5, show_default=True, help="Batches of each kind.")
@click.option("--roads", default="grid2d:side=1000", show_default=True, help="Graph whose results are repaired.")
@click.option(
    "--changes",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Edges of a batch there.",
)
@click.option(
    "--singles",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Single edges to change there.",
)
@click.option("--backend", type=click.Choice(BACKENDS), default="cpu", show_default=True, help="Device of the workers.")
@json_option
def updates(
    scale: int,
    edges: int,
    ranks: int,
    times: int,
    roads: str,
    changes: int,
    singles: int,
    backend: str,
    as_json: bool,
) -> None:
    """Measure updates of a living graph.

    Batches of random edges are inserted into a Kronecker graph and deleted again. Then the graph is traversed on its
    pages, and frozen to a CSR and traversed again. Edges of the tree of a traversal through the graph of --roads are
    deleted and inserted again; after each batch the result is repaired, and a new traversal is made.

    Example: dbfs bench updates --scale 14 --edges 100000
    """
    with connect(None, ranks, backend, processes=True) as client:
        rates = bench_updates(client, scale, edges, times, backend)
        repairs = bench_repairs(client, roads, changes, times, singles, backend)
    if as_json:
        print_json(asdict(rates) | {"ratio": rates.ratio, "repairs": asdict(repairs)})
        return
    rows = [
        ("inserted, M edges/s", f"{rates.insert / 1e6:.2f}"),
        ("deleted, M edges/s", f"{rates.delete / 1e6:.2f}"),
        ("traversal on pages, ms", f"{rates.pages * 1e3:.1f}"),
        ("traversal on a CSR, ms", f"{rates.csr * 1e3:.1f}"),
        ("CSR / pages", f"{rates.ratio:.2f}"),
        ("bytes of pages / CSR", f"{rates.bytes_of_csr:.2f}"),
        ("the same, compact", f"{rates.bytes_compact:.2f}"),
    ]
    title = f"kronecker:scale={scale}, batches of {edges:,} edges, {ranks} rank{'s' * (ranks > 1)} on {backend}"
    print_results(title, ("what", "figure"), rows, [rates], as_json=False)
    rows = [
        ("repair, ms", f"{repairs.repair * 1e3:.1f}"),
        ("new traversal, ms", f"{repairs.traversal * 1e3:.1f}"),
        ("new traversal / repair", f"{repairs.speedup:.1f}"),
        ("the same, least", f"{repairs.least_speedup:.1f}"),
        *((f"one edge changed and repaired, p{key}, ms", f"{s * 1e3:.1f}") for key, s in repairs.single.items()),
    ]
    title = f"{roads}, batches of {changes:,} edges, {ranks} rank{'s' * (ranks > 1)} on {backend}"
    print_results(title, ("what", "figure"), rows, [repairs], as_json=False)
