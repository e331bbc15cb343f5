"""``dbfs bench build``: the time and memory of builds on a local cluster of CPU cores."""

from __future__ import annotations

import itertools
from dataclasses import replace

import click

from benchmarks.cli.common import connect_workers, memory_option
from benchmarks.cli.plans import plan_option
from dbfs import progress
from dbfs.cli.arguments import GraphType
from dbfs.cli.common import json_option, print_results
from dbfs.units import format_bytes

# As ``benchmarks.build.FORMS``, whose import takes a second.
_FORMS = ("generator", "arrays", "text", "matrix-market", "parquet", "parquet-ids", "parquet-names")


@click.command()
@plan_option
@click.option("--graph", "graphs", type=GraphType(), multiple=True, help="A generator, instead of the plan's.")
@click.option("--form", "forms", type=click.Choice(_FORMS), multiple=True, help="A form, instead of the plan's.")
@click.option("--ranks", type=click.IntRange(1), multiple=True, help="Number of workers, instead of the plan's.")
@memory_option
@json_option
def build(
    plan: str,
    graphs: tuple[str, ...],
    forms: tuple[str, ...],
    ranks: tuple[int, ...],
    memory_limit: str,
    as_json: bool,
) -> None:
    """Measure the time and memory of building graphs.

    A graph is built from its generator, from arrays, and from files: of vertices, of sparse integer ids (parquet-ids)
    or of strings (parquet-names). The peak is the memory that a worker takes beyond what it had before the build, next
    to the memory of its partition. --graph, --form and --ranks may be repeated.

    Example: dbfs bench build --graph kronecker:scale=18 --form generator --ranks 2
    """
    from benchmarks.build import BuildPlan, bench_build
    from benchmarks.plan import find

    chosen = BuildPlan.read(find("build", plan))
    chosen = replace(
        chosen,
        graphs=graphs or chosen.graphs,
        forms=forms or chosen.forms,
        ranks=tuple(sorted(set(ranks))) or chosen.ranks,
    )
    done = itertools.count()
    with progress.bar("bench build", len(chosen.graphs) * len(chosen.forms) * len(chosen.ranks)) as bar:
        costs = list(
            bench_build(
                lambda workers: connect_workers(None, workers, "cpu", memory_limit),
                chosen,
                lambda what: bar.set(next(done), what),
            )
        )
    rows = [
        (
            cost.graph,
            cost.form,
            str(cost.ranks),
            f"{cost.seconds:.2f}",
            f"{cost.rate / 1e6:.1f}",
            format_bytes(max(cost.partition)),
            f"{cost.ratio:.2f}",
            "" if cost.estimate is None else f"{100 * cost.estimate / max(cost.peak):.0f} %",
        )
        for cost in costs
    ]
    columns = ("graph", "form", "ranks", "seconds", "M edges/s", "partition", "peak / partition", "estimate / peak")
    print_results(f"Builds, vertices ordered by {chosen.order}", columns, rows, costs, as_json=as_json)
