"""Sizes of the sort into a bin for each owner, of the engine and the laboratory: ``kernels/common/owner_bins.cuh``."""

from typing import Final

MOST_OWNERS: Final = 255
"""An owner is a byte, of which one value says that a vertex was dropped: ``kMostOwners`` of the header."""

# Tiles of a block at least, of an entry for each thread: of entries in flight at once, duplicates pass.
_TILES: Final = 4


def blocks_for(size: int, threads: int, most: int) -> int:
    """Return the blocks for so many entries: one or more, at most ``most``, of so many threads each."""
    return max(1, min(most, -(-size // (_TILES * threads))))
