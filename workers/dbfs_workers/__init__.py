"""The worker side of dbfs: everything that runs inside a Dask worker. It imports nothing of the package ``dbfs``.

In: Dask tasks (``tasks``) and the scheduler's calls to the worker plugin (``plugin``), which hands a run to this rank's
member of the gang (``members``). Out: results of tasks, reports of runs, and labels that stay on the worker.
"""
