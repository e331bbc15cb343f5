"""Words that the kernels of the phases share with the host: the sums of a level, messages and results, declared once.

In: the records of ``reports.crossings``, and the messages of ``communicator.py``. Out: places for the host, and
``HEADER``, the C++ header ``generated/words.cuh`` with the same places (``structs.header``).
"""

import enum
from typing import Final

from dbfs_workers.search.cuda import communicator
from dbfs_workers.search.cuda.structs import header
from dbfs_workers.search.reports.crossings import Measured

HEADER_NAME: Final = "generated/words.cuh"


class TopDownSum(enum.IntEnum):
    """Sums of a top-down level, each a ``Line``.

    From ``ENDS`` on there is one for each owner: the vertices in its bin, or this rank's own discoveries.
    """

    EDGES = 0
    ENDS = 1


class SearchSum(enum.IntEnum):
    """Sums of a bottom-up level, or of a measured frontier, each a ``Line``: counts of ``crossings.Measured``."""

    SEARCHED = 0
    VERTICES = 1
    EDGES = 2


class Progress(enum.IntEnum):
    """Words of a queue's progress: the vertices of the next frontier, and whether the queue is halted."""

    SIZE = 0
    HALTED = 1


_HEADER_WORDS: Final = ("NUMBER", "CROSSING", "RUN", "SIZE", "LARGE", "START")
_RESULT_WORDS: Final = ("OWN", "QUEUED", "EDGES", "FOUND", "EXPANDED", "RECEIVED", "STATE", "FIRST_END")
_STATES: Final = ("LARGE_BINS", "OTHER_CROSSING", "HALTED")

HEADER: Final = header(
    {"HEADER_WORDS": communicator.HEADER, "SEARCH_SUMS": len(SearchSum)}
    | {f"HEADER_{name}": getattr(communicator, name) for name in _HEADER_WORDS}
    | {f"HEADER_{name.upper()}": communicator.FIRST_COUNT + at for at, name in enumerate(Measured._fields)}
    | {f"RESULT_{name}": getattr(communicator, name) for name in _RESULT_WORDS}
    | {name: getattr(communicator, name) for name in _STATES}
    | {
        f"{prefix}_{word.name}": word.value
        for prefix, words in (("TOP_DOWN", TopDownSum), ("SEARCH", SearchSum), ("PROGRESS", Progress))
        for word in words
    },
    scoped=(),
    indexes=(),
    structs=(),
)
