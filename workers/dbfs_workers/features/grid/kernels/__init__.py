"""Kernels of the 2-D partition."""

from typing import Final

NEEDED: Final = ("dbfs_workers.features.grid.kernels.grid", "dbfs_workers.features.grid.kernels.team")
"""What a CPU rank of a 2-D partition needs compiled."""
