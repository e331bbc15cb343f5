"""``dbfs bench hosts``: exchanges between hosts, on a local cluster."""

from __future__ import annotations

import click

from dbfs.cli.common import connect, json_option, print_results


@click.command()
@click.option("--ranks", type=click.IntRange(3), default=4, show_default=True, help="Number of workers on CPUs.")
@click.option("--gpus", type=click.IntRange(2), help="Measure this number of GPUs instead.")
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator or a file.")
@click.option("--levels", type=click.IntRange(8), default=2000, show_default=True, help="Levels of the path graph.")
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Traversals of each kind.")
@json_option
def hosts(ranks: int, gpus: int | None, graph: str, levels: int, rounds: int, as_json: bool) -> None:
    """Measure exchanges between hosts, next to the exchange on one host.

    The workers are on this machine. On CPUs they pretend to be on two hosts, then on one host each, and exchange by
    TCP. On GPUs they exchange by NCCL, then over Dask's connections; with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 in
    the environment, NCCL takes sockets as between hosts. The exchanges take turns, and the times are medians.

    Example: dbfs bench hosts --gpus 2 --graph kronecker:scale=24
    """
    from benchmarks.hosts import bench_gpu_hosts, bench_hosts

    if gpus is None:
        with connect(None, ranks, "cpu") as client:
            costs = list(bench_hosts(client, ranks, graph, levels, rounds))
        subject = f"{graph} by degree, {ranks} ranks"
    else:
        with connect(None, gpus, "cuda") as client:
            costs = list(bench_gpu_hosts(client, gpus, graph, levels, rounds))
        subject = f"{graph} as given, {gpus} GPUs"
    rows = [
        (c.exchange, str(c.hosts), f"{c.level:.3f}", f"{c.level_ratio:.1f}", f"{c.graph:.2f}", f"{c.graph_ratio:.2f}")
        for c in costs
    ]
    print_results(
        f"A level of a path and {subject}",
        ("exchange", "hosts", "ms a level", "ratio", "graph ms", "ratio"),
        rows,
        costs,
        as_json=as_json,
    )
