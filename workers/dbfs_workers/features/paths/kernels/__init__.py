"""Kernels of a search from both ends, and of the path that it leaves."""

from typing import Final

NEEDED: Final = tuple(f"dbfs_workers.features.paths.kernels.{name}" for name in ("counts", "search", "trail"))
"""What a CPU rank needs compiled for searches between two vertices."""
