"""The laboratory's CUDA sources: one each strategy, and those of experiments."""

from typing import Final

from dbfs_workers.features.lab import layout
from dbfs_workers.search.cuda.source import Source


def lab_source(name: str, defines: tuple[str, ...] = ()) -> Source:
    """Return a source of the laboratory by its file's name, such as ``two_phase``."""
    generated = ((layout.HEADER_NAME, layout.HEADER),)
    return Source(f"features/lab/kernels/{name}.cu", defines, generated, launching=name == "device_launches")


SOURCES: Final = tuple(
    lab_source(name)
    for name in (
        *("atomic_queue", "bitmap_queue", "contract_expand", "degree_classes", "device_launches", "expand_contract"),
        *("hierarchical", "masks", "matrix_vector", "pages", "phases", "radix_bins", "status_array", "status_scan"),
        *("two_phase", "warp_centric"),
    )
)
