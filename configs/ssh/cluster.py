"""A cluster over SSH: the scheduler on the first host, workers on all others, until Ctrl-C.

python configs/ssh/cluster.py node0 node1 node2 --workers 16

Every host must have the same Python environment (see --python) and let this user in by a key. A host may be named
twice: to have workers on the scheduler's, too.
"""

import signal
from typing import Any

import click
from distributed import SSHCluster


def cluster(hosts: tuple[str, ...], workers: int, *, gpus: bool = False, **ssh: Any) -> SSHCluster:
    """Start it.

    Args:
        hosts: the scheduler's first; at least two.
        workers: on each host; dask-cuda makes one for each GPU by itself.
        gpus: whether the workers are dask-cuda's.
        ssh: further arguments of ``SSHCluster``: ``connect_options``, ``remote_python``, ...
    """
    one_a_core = {"nthreads": 1, "n_workers": workers}
    return SSHCluster(
        list(hosts),
        worker_class="dask_cuda.CUDAWorker" if gpus else "distributed.Nanny",
        worker_options={"preload": ["dbfs.preload"]} | ({} if gpus else one_a_core),
        scheduler_options={"port": 0, "dashboard_address": ":8787"},
        **ssh,
    )


@click.command()
@click.argument("hosts", nargs=-1, required=True)
@click.option("--workers", default=1, show_default=True, help="On each host, one for each core it shall use.")
@click.option("--gpus", is_flag=True, help="A worker for each GPU instead.")
@click.option("--python", help="The Python on the hosts; this one's path if left out.")
def main(hosts: tuple[str, ...], workers: int, gpus: bool, python: str | None) -> None:
    """Start a scheduler on the first of HOSTS and workers on the others."""
    with cluster(hosts, workers, gpus=gpus, remote_python=python) as running:
        click.echo(f"export DASK_SCHEDULER_ADDRESS={running.scheduler_address}")
        signal.pause()


if __name__ == "__main__":
    main()
