"""Functions that Dask tasks run on workers: steps of a build, levels of the taskgraph engine, validation, queries.

In come pieces of an edge list, partitions, bins and labels, as arguments that Dask passes. Out go results that stay on
the worker under a Dask key, or counts and answers for the client.
"""
