"""Checks over a whole graph that each worker runs on its own edges: validation of labels, and connected components.

In: a rank's edges, and the labels or bitmaps of all ranks. Out: each rank's findings or forest, merged into one verdict
(``validation``, ``verdict``) or one forest (``components``). ``dbfs_workers.building`` wraps the checks as Dask tasks.
"""
