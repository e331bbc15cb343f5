"""Kernels of the 2-D partition."""

from typing import Final

NEEDED: Final = ("dbfs_workers.features.grid.kernels.grid",)
"""What a CPU rank of a 2-D partition needs compiled."""

TEAM: Final = (
    "dbfs_workers.features.grid.kernels.team_tasks",
    "dbfs_workers.search.cpu.kernels.team:is_large",
    "dbfs_workers.search.cpu.kernels.team:close_gaps",
)
"""What the rank needs besides if several threads share its work."""
