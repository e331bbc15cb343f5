"""Kernels of a batch's levels, and of the sweeps over shortest paths."""

from typing import Final

NEEDED: Final = ("dbfs_workers.features.batches.kernels.batch", "dbfs_workers.features.batches.kernels.path_sums")
"""What a CPU rank needs compiled for batches."""
