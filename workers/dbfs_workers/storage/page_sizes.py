"""The sizes of paged rows, for estimates: see ``pages``."""

from typing import Final

PAGE: Final = 4
"""Columns of a page: 16 bytes. A row of a road network fills one; a row of degree 32 wastes 1.5 columns on average."""

SPARE: Final = 0.25
"""Room of a pool beyond the rows that it was made for, as a part of these."""


def most_bytes(rows: int, columns: int) -> int:
    """Return the most bytes that the pages of rows take, with the room for batches to come.

    A short row wastes less than a page, a longer one less than a quarter of its columns (``pages.run_pages``).
    """
    pool = columns + (PAGE - 1) * rows + columns // 4
    return 16 * rows + 4 * (pool + int(SPARE * pool))
