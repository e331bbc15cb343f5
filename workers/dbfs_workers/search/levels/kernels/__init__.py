"""CPU kernels that run many levels."""

from typing import Final

TOP_DOWN: Final = ("dbfs_workers.search.levels.kernels.consecutive",)
"""One kernel for many top-down levels."""

LED: Final = ("dbfs_workers.search.levels.kernels.led",)
"""Levels that one rank leads."""
