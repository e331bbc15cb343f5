"""The taskgraph engine on a worker: each phase of a level is a Dask task."""
