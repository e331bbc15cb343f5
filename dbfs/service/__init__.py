"""The service: graphs by name and one queue of runs, shared by all clients of a cluster.

In: clients' messages (``messages``), sent by the client's half, ``client.ServiceClient``. The scheduler's half,
``scheduler.SchedulerService``, answers them and sends messages to the workers' half,
``dbfs_workers.serving.plugin.WorkerService``. Out: a graph's record, the ranks' reports of a run, or a typed error.

The steps of a run, from the client's call to the levels:

1. ``ServiceClient.call(Enqueue(...))`` on the client
2. ``SchedulerService.enqueue`` on the scheduler. The run waits in ``SchedulerService.runs`` until
   ``RunQueue.start_runs`` gives it its turn.
3. ``Conductor.conduct`` on the scheduler, which sends ``StartRank`` to the worker of every rank
4. ``WorkerService.start_rank`` on a worker
5. ``Member.traverse`` in the member's thread: ``levels.loop.traverse`` on CPUs, the resident kernel on GPUs
"""
