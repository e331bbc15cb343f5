"""Kernels that bin, sort and count edges, and that read pairs of integers."""

from typing import Final

BUILDING: Final = (
    "dbfs_workers.building.kernels.building:count_bins",
    "dbfs_workers.building.kernels.building:bin_by_owner",
    "dbfs_workers.building.kernels.building:count_rows",
    "dbfs_workers.building.kernels.building:place_columns",
    "dbfs_workers.building.kernels.sorting",
)
FIRST: Final = (*BUILDING, "dbfs_workers.building.kernels.pairs")
