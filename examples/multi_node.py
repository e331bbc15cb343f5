"""Traversals on a running cluster from eight sources, each result validated.

python examples/multi_node.py --scheduler tcp://HEAD:8786 --ranks 32 --scale 24

The address may also be given in DASK_SCHEDULER_ADDRESS. ``configs/README.md`` describes how to start a cluster.
"""

import click
from rich.console import Console

import dbfs
from dbfs.display import tables


@click.command()
@click.option("--scheduler", envvar="DASK_SCHEDULER_ADDRESS", required=True, help="Address of the cluster's scheduler.")
@click.option(
    "--ranks", type=int, help="Number of workers to wait for, one rank each; if left out, the workers that are present."
)
@click.option("--scale", default=20, show_default=True, help="The graph has 2^scale vertices.")
def main(scheduler: str, ranks: int | None, scale: int) -> None:
    """Load a Kronecker graph on a cluster, traverse it from eight sources, and validate the results."""
    console = Console()
    with (
        dbfs.connect(scheduler, n_workers=ranks) as client,
        dbfs.load(dbfs.kronecker(scale), client=client, ranks=ranks, order="degree") as graph,
    ):
        hosts = {address.rpartition(":")[0] for address in graph.gang.addresses}
        results = graph.bfs_many(graph.sample_sources(8), predecessors=True)
        for result in results:
            result.validate()
        console.print(tables.describe(graph), highlight=False, soft_wrap=True)
        console.print(f"hosts: {len(hosts)}, backend: {graph.backend}, exchange: {graph.exchange}", highlight=False)
        console.print(tables.results_table(results, validated=True))
        for result in results:
            result.release()


if __name__ == "__main__":
    main()
