"""The worker side of dbfs: what runs inside a Dask worker. It imports nothing of the package ``dbfs``."""
