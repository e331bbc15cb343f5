"""Clusters: connecting to one, the gang of workers that holds a graph, kernels compiled ahead, checks of a machine.

In: a scheduler's address or a number of workers; pinned tasks. Out: a ``distributed.Client``, a ``Gang`` in rank order,
results of tasks within a deadline, and the findings of ``dbfs doctor``.
"""
