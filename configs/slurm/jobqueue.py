"""A Slurm cluster made from Python with dask-jobqueue; each Slurm job is one node of workers.

The scheduler runs where the notebook or script runs: on a login node, or in a job of its own.
"""

from dask_jobqueue import SLURMCluster

import dbfs

NODES, CORES = 2, 16
# The network between the nodes and the scheduler. Each of its hosts can run code on the workers.
INTERFACE = "ib0"


def cluster(**overrides: object) -> SLURMCluster:
    """Return a cluster with a worker for each 4 cores; ``overrides`` are arguments of ``SLURMCluster``."""
    settings = {
        "cores": CORES,
        # One worker is one rank, of 4 threads.
        "processes": CORES // 4,
        "interface": INTERFACE,
        "scheduler_options": {"dashboard_address": "127.0.0.1:8787"},
        "memory": "64GB",
        "walltime": "01:00:00",
        # Add "queue": "compute" and "account": "...".
        "worker_extra_args": ["--dashboard-address", "127.0.0.1:0", "--preload", "dbfs.preload"],
    }
    return SLURMCluster(**settings | overrides)


if __name__ == "__main__":
    with cluster() as nodes:
        nodes.scale(jobs=NODES)
        client = nodes.get_client()
        client.wait_for_workers(NODES * CORES // 4)
        print(dbfs.load("kronecker:scale=24", client=client).bfs(1, validate=True))
