"""A Slurm cluster made from Python with dask-jobqueue; each Slurm job is one node of workers.

The scheduler runs where the notebook or script runs: on a login node, or in a job of its own.
"""

from dask_jobqueue import SLURMCluster

import dbfs

NODES, CORES = 2, 16


def cluster(**overrides: object) -> SLURMCluster:
    """Return a cluster whose nodes have a worker for each core; ``overrides`` are arguments of ``SLURMCluster``."""
    settings = {
        "cores": CORES,
        # One worker is one rank.
        "processes": CORES,
        "memory": "64GB",
        "walltime": "01:00:00",
        # Add "queue": "compute" and "account": "...", and "interface": "ib0" for InfiniBand.
        "worker_extra_args": ["--preload", "dbfs.preload"],
    }
    return SLURMCluster(**settings | overrides)


if __name__ == "__main__":
    with cluster() as nodes:
        nodes.scale(jobs=NODES)
        client = nodes.get_client()
        client.wait_for_workers(NODES * CORES)
        print(dbfs.load("kronecker:scale=24", client=client).bfs(1, validate=True))
