"""``dbfs bench updates``: batches of changes, and traversals on pages next to a CSR."""

from __future__ import annotations

from dataclasses import asdict

import click

from dbfs.bench.updates import bench_updates
from dbfs.cli.common import connect, json_option, print_json, print_results


@click.command()
@click.option("--scale", type=click.IntRange(5), default=18, show_default=True, help="Logarithm of the vertices.")
@click.option("--edges", type=click.IntRange(1), default=1_000_000, show_default=True, help="Edges of a batch.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of workers.")
@click.option("--times", type=click.IntRange(1), default=5, show_default=True, help="Batches of each kind.")
@json_option
def updates(scale: int, edges: int, ranks: int, times: int, as_json: bool) -> None:
    """Measure updates of a living graph on CPU cores.

    Batches of random edges are inserted into a Kronecker graph and deleted again. Then the graph is traversed on its
    pages, and frozen to a CSR and traversed again.

    Example: dbfs bench updates --scale 14 --edges 100000
    """
    with connect(None, ranks, "cpu", processes=True) as client:
        rates = bench_updates(client, scale, edges, times)
    if as_json:
        print_json(asdict(rates) | {"ratio": rates.ratio})
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
    title = f"kronecker:scale={scale}, batches of {edges:,} edges, {ranks} rank{'s' * (ranks > 1)}"
    print_results(title, ("what", "figure"), rows, [rates], as_json=False)
