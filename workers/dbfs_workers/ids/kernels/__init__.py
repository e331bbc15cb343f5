"""CPU kernels that number integers and strings."""

from typing import Final

NUMBERING: Final = {
    "integer": ("dbfs_workers.ids.kernels.integers",),
    "string": ("dbfs_workers.ids.kernels.strings", "dbfs_workers.ids.kernels.ids"),
}
"""By the kind of the ids; tuples are numbered as strings."""

FIRST: Final = tuple(name for names in NUMBERING.values() for name in names)
