"""Kernels that change rows, and that repair labels."""

from typing import Final

NEEDED: Final = (
    "dbfs_workers.features.living.kernels.pages",
    "dbfs_workers.features.living.kernels.repair",
    "dbfs_workers.features.living.kernels.repair_limits",
    "dbfs_workers.features.living.kernels.repair_search",
    "dbfs_workers.features.living.kernels.repair_round",
)
"""What a CPU rank of a living graph needs compiled."""
