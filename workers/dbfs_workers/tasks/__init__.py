"""What Dask tasks run on workers."""
