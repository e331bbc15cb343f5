"""A cluster over SSH: the scheduler on the first host and workers on all other hosts, until Ctrl-C.

python configs/ssh/cluster.py node0 node1 node2 --workers 16

Every host must have the same Python environment (see --python) and accept this user's key. To run workers on the
scheduler's host as well, name that host twice.
"""

import signal
from typing import Any

import click
from distributed import SSHCluster


def cluster(hosts: tuple[str, ...], workers: int, *, gpus: bool = False, **ssh: Any) -> SSHCluster:
    """Start the cluster.

    Args:
        hosts: the scheduler's host, then the workers' hosts; at least two.
        workers: number of workers on each host; ignored with ``gpus``.
        gpus: whether to start dask-cuda's workers, one for each GPU.
        ssh: further arguments of ``SSHCluster``: ``connect_options``, ``remote_python``, ...
    """
    one_for_each_core = {"nthreads": 1, "n_workers": workers}
    return SSHCluster(
        list(hosts),
        worker_class="dask_cuda.CUDAWorker" if gpus else "distributed.Nanny",
        worker_options={"preload": ["dbfs.preload"]} | ({} if gpus else one_for_each_core),
        scheduler_options={"port": 0, "dashboard_address": ":8787", "preload": ["dbfs.preload"]},
        **ssh,
    )


@click.command()
@click.argument("hosts", nargs=-1, required=True)
@click.option(
    "--workers", default=1, show_default=True, help="Number of workers on each host, such as its number of cores."
)
@click.option("--gpus", is_flag=True, help="Start one worker for each GPU instead.")
@click.option("--python", help="Path of Python on the hosts; if left out, that of this Python.")
def main(hosts: tuple[str, ...], workers: int, gpus: bool, python: str | None) -> None:
    """Start a scheduler on the first of HOSTS and workers on the other hosts."""
    with cluster(hosts, workers, gpus=gpus, remote_python=python) as running:
        click.echo(f"export DASK_SCHEDULER_ADDRESS={running.scheduler_address}")
        signal.pause()


if __name__ == "__main__":
    main()
