"""A Slurm cluster made from Python, by dask-jobqueue: each job is a node of workers.

Where the notebook or script runs, the scheduler runs, too: on a login node, or in a job of its own.
"""

from dask_jobqueue import SLURMCluster

import dbfs

NODES, CORES = 2, 16


def cluster(**overrides: object) -> SLURMCluster:
    """Nodes with a worker for each core; arguments of ``SLURMCluster`` override."""
    settings = {
        "cores": CORES,
        # One worker is one rank.
        "processes": CORES,
        "memory": "64GB",
        "walltime": "01:00:00",
        # "queue": "compute", "account": "...", and "interface": "ib0" for InfiniBand.
        "worker_extra_args": ["--preload", "dbfs.preload"],
    }
    return SLURMCluster(**settings | overrides)


if __name__ == "__main__":
    with cluster() as nodes:
        nodes.scale(jobs=NODES)
        client = nodes.get_client()
        client.wait_for_workers(NODES * CORES)
        print(dbfs.load("kronecker:scale=24", client=client).bfs(1, validate=True))
