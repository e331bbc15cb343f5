"""Distributed breadth-first search on Dask workers."""
