"""Kernels of the rounds of shortest paths by weight."""

from typing import Final

NEEDED: Final = ("dbfs_workers.features.weights.kernels.rounds", "dbfs_workers.features.weights.kernels.entries")
"""What a CPU rank needs compiled for shortest paths by weight."""

TEAM: Final = ("dbfs_workers.features.weights.kernels.team",)
"""Kernels by which several threads share large rounds."""
