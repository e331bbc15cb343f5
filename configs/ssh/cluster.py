"""A cluster over SSH: the scheduler on the first host and workers on all other hosts, until Ctrl-C.

python configs/ssh/cluster.py node0 node1 node2 --interface eth0 --workers 4

Every host must have the same Python environment (see --python) and accept this user's key. To run workers on the
scheduler's host as well, name that host twice.
"""

import signal
from typing import Any

import click
from distributed import SSHCluster


def cluster(hosts: tuple[str, ...], workers: int, interface: str, *, gpus: bool = False, **ssh: Any) -> SSHCluster:
    """Start the cluster. The dashboards listen on the loopback of their hosts.

    Args:
        hosts: the scheduler's host, then the workers' hosts; at least two.
        interface: the network at which all processes listen, such as ``eth0``; each of its hosts can run code on them.
        workers: number of workers on each host; ignored with ``gpus``.
        gpus: whether to start dask-cuda's workers, one for each GPU.
        ssh: further arguments of ``SSHCluster``: ``connect_options``, ``remote_python``, ...
    """
    everywhere = {"interface": interface, "preload": ["dbfs.preload"]}
    of_four_threads = {"nthreads": 4, "n_workers": workers}
    return SSHCluster(
        list(hosts),
        worker_class="dask_cuda.CUDAWorker" if gpus else "distributed.Nanny",
        worker_options={"dashboard_address": "127.0.0.1:0"} | everywhere | ({} if gpus else of_four_threads),
        scheduler_options={"port": 0, "dashboard_address": "127.0.0.1:8787"} | everywhere,
        **ssh,
    )


@click.command()
@click.argument("hosts", nargs=-1, required=True)
@click.option("--interface", required=True, help="The network between the hosts, such as eth0.")
@click.option(
    "--workers", default=1, show_default=True, help="Number of workers of 4 threads on each host: one for each 4 cores."
)
@click.option("--gpus", is_flag=True, help="Start one worker for each GPU instead.")
@click.option("--python", help="Path of Python on the hosts; if left out, that of this Python.")
def main(hosts: tuple[str, ...], interface: str, workers: int, gpus: bool, python: str | None) -> None:
    """Start a scheduler on the first of HOSTS and workers on the other hosts."""
    with cluster(hosts, workers, interface, gpus=gpus, remote_python=python) as running:
        click.echo(f"export DASK_SCHEDULER_ADDRESS={running.scheduler_address}")
        signal.pause()


if __name__ == "__main__":
    main()
