"""Kernels that check labels."""

from typing import Final

FIRST: Final = ("dbfs_workers.features.validation.kernels.validation",)
