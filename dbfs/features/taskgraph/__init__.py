"""The taskgraph engine: a level is a Dask graph of expand, filter + partition, bins, barrier and contract."""
