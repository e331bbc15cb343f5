"""How many threads and blocks run the kernels of ``cuda/kernels/phases/``."""

from typing import Final

from dbfs_workers.search.cuda import layout

THREADS: Final = 256
MOST_THREADS: Final = 1024
# Enough blocks to fill any GPU. With more work than threads, each thread (or warp) strides over it.
MOST_BLOCKS: Final = 132 * 16
WARP: Final = 32
SEARCH_WORDS: Final = 8
"""Words of a bitmap that a warp takes at a time: ``kSearchWords`` of ``search/cuda/kernels/phases/search_words.cuh``."""
# u64 words of a cache line: kernels add up each count on a line of its own (``Line`` in ``layout.py``), for speed.
LINE_WORDS: Final = layout.LINE_BYTES // 8


def blocks_for(threads: int) -> int:
    """Return the number of blocks for so many threads or more work than that."""
    return min(MOST_BLOCKS, -(-threads // THREADS))
