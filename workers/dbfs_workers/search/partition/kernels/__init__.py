"""CPU kernels over the rows of a partition, and over labels."""

from typing import Final

NEEDED: Final = ("dbfs_workers.search.partition.kernels.first_labels",)
"""What each traversal needs compiled."""
