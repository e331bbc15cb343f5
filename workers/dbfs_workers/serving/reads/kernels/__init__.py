"""Kernels that put labels into the order of a client's vertices."""

from typing import Final

FIRST: Final = ("dbfs_workers.serving.reads.kernels.labels",)
