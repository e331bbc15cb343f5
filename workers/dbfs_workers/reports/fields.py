"""The columns of a traversal's two tables, which have one row a level (``summing``: in long ones, several).

Counts are those of ``dbfs_workers.levels.counts.LevelCounts``; ``bottom_up`` is 1 for a bottom-up level, else 0. A
bottom-up level's ``edges`` are the edges that it looked at. Its ``own`` equals its ``discovered``, and its
``bytes_sent`` are bitmap slices.

Times are the seconds of a level's work on its own edges (expand, filter + partition and the contraction of the own bin;
or the bottom-up search), of sending to peers and waiting for them, and of the contraction of the peers' bins.
"""

from typing import Final

COUNT_FIELDS: Final = (
    "bottom_up",
    "frontier",
    "edges",
    "filtered",
    "own",
    "sent",
    "culled",
    "discovered",
    "bytes_sent",
)
TIME_FIELDS: Final = ("search", "exchange", "contract")
