"""The service: graphs by name and one queue of runs, shared by all clients of a cluster.

In: clients' messages (``messages``), sent by the client's half, ``client.ServiceClient``. The scheduler's half,
``scheduler.SchedulerService``, answers them and sends messages to the workers' half,
``dbfs_workers.serving.plugin.WorkerService``. Out: a graph's record, the ranks' reports of a run, or a typed error.
Features add to both halves what ``feature`` and ``dbfs_workers.serving.feature`` say.
"""
