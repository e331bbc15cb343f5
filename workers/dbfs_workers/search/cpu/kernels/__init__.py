"""CPU kernels of the phases of a level."""

from typing import Final

NEEDED: Final = (
    "dbfs_workers.search.cpu.kernels.phases:contract",
    "dbfs_workers.search.cpu.kernels.phases:edge_count",
    "dbfs_workers.search.cpu.kernels.level",
)
"""The phases of one rank; the host directs each level."""

TEAM: Final = ("dbfs_workers.search.cpu.kernels.team", "dbfs_workers.search.cpu.kernels.team_tasks")
"""Kernels by which several threads share a rank's work."""
