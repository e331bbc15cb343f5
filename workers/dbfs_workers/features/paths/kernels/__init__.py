"""Kernels of a search from both ends, and of the path that it leaves."""

from typing import Final

NEEDED: Final = ("dbfs_workers.features.paths.kernels.search", "dbfs_workers.features.paths.kernels.trail")
"""What a CPU rank needs compiled for searches between two vertices."""
