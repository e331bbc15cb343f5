"""Reports: what one rank found and did in a traversal, and the form in which that reaches the scheduler and the client.

In: a finished traversal's labels, counts and times, from the level loop or from the resident kernel (``RankRun``).
Out: the same without the labels, packed into few bytes (``RankReport``), and the sums of a run (``RunSummary``); and,
while a run is under way, the place that a rank has reached (``RankProgress``).
"""

from dbfs_workers.search.reports.counts import COUNT_FIELDS, ROW, TIME_FIELDS, Row, join, tables
from dbfs_workers.search.reports.packing import (
    MOST_ROWS,
    CountedLevels,
    LevelRecords,
    PackedTables,
    levels_of_rows,
    summed,
)
from dbfs_workers.search.reports.run import RankProgress, RankReport, RankRun, RunSummary

__all__ = [
    "COUNT_FIELDS",
    "MOST_ROWS",
    "ROW",
    "TIME_FIELDS",
    "CountedLevels",
    "LevelRecords",
    "PackedTables",
    "RankProgress",
    "RankReport",
    "RankRun",
    "Row",
    "RunSummary",
    "join",
    "levels_of_rows",
    "summed",
    "tables",
]
