"""Constants, counters and arguments that the laboratory's kernels share with the host (``dbfs_workers.features.lab``).

Out: ``HEADER``, the C++ header ``generated/lab.cuh`` that NVRTC gets in memory; ``ARGUMENTS``, the dtype of its struct.
"""

import enum
from typing import Any, Final

import numpy as np

from dbfs_workers.search.cuda.structs import Field, Struct, header

HEADER_NAME: Final = "generated/lab.cuh"


class Gathering(enum.IntEnum):
    """How the threads of a block share the adjacency lists of a tile of vertices (Merrill 2012, section 4.1)."""

    SERIAL = 0
    WARP = 1
    SCAN = 2
    SCAN_WARP_CTA = 3


class Status(enum.IntEnum):
    """Where a kernel looks whether a neighbour was visited (Merrill 2012, section 4.2), and how it labels it.

    Without CLAIMS, threads that find a vertex at once all label it, and it goes on more than once.
    """

    LABELS = 0
    BITMASK = 1
    CLAIMS = 2


class Culling(enum.IntEnum):
    """How a block drops duplicates that the status lookup let pass (Merrill 2012, section 4.2). Two bits."""

    NONE = 0
    WARP = 1
    HISTORY = 2
    WARP_HISTORY = 3


class Tiles(enum.IntEnum):
    """How blocks take the tiles of an input queue, and where in the output queue a tile's entries go.

    SHARE, STEAL and OVERSUBSCRIBE reserve places as blocks come: a block takes one range of tiles, or the next
    neighbouring tiles that no block has taken, or one tile (Merrill 2012, section 4.1). With ORDER a block takes the
    next tile, and places are in the order of the tiles.
    """

    SHARE = 0
    STEAL = 1
    ORDER = 2
    OVERSUBSCRIBE = 3


class Neighbours(enum.IntEnum):
    """Whether expand-contract drops duplicates among gathered neighbours too, not only in its queue."""

    PASS = 0
    CULL = 1


class Storage(enum.IntEnum):
    """Where a vertex's neighbours lie: in a range of the columns, or on linked pages (Tödling 2019, section 7)."""

    CSR = 0
    PAGES = 1


class LabCounter(enum.IntEnum):
    """Counters of one launch.

    ``QUEUED`` is the length that the output queue would have, room or not; of an update, the pages that it
    takes or gives back. ``EXPANDED`` counts vertices whose lists were read, ``EDGES`` the neighbours in these lists,
    ``LOOKED_AT`` the vertices or queue entries that threads looked at, ``LONG_LISTS`` the lists long enough for a
    kernel of their own, ``TILES`` the tiles that blocks asked for. From ``QUEUED_THREADS`` on, there is a counter of
    appended vertices for each class of them. The others count neighbours dropped, by what dropped them, and neighbours
    that got a label; of an update, ``LABELLED`` counts the edges inserted or deleted.
    """

    QUEUED = 0
    EXPANDED = 1
    EDGES = 2
    LOOKED_AT = 3
    BITMASK_CULLED = 4
    LABEL_CULLED = 5
    WARP_CULLED = 6
    HISTORY_CULLED = 7
    CLAIM_CULLED = 8
    LABELLED = 9
    LONG_LISTS = 10
    TILES = 11
    QUEUED_THREADS = 12
    QUEUED_WARPS = 13
    QUEUED_BLOCKS = 14
    QUEUED_GRID = 15


COUNTERS: Final = len(LabCounter)
CLASSES: Final = COUNTERS - LabCounter.QUEUED_THREADS
"""Classes of vertices by degree: for a thread, a warp, a block, the grid."""
PAGE_COLUMNS: Final = 31
"""Neighbours on a page. The word behind them is the number of the next page."""
START_DISTANCE: Final = 1
START_LAUNCH: Final = 2
"""Places in the row before the counters of a chain's first launch, behind the entries of that launch's input queue."""

_ARGUMENTS: Final = Struct(
    "LabArguments",
    "Arguments of every kernel of the laboratory; a kernel reads those that it needs.",
    (
        Field("offsets", "const i64*", "[rows + 1]"),
        Field("columns", "const u32*", "rows of the neighbours"),
        Field("lists", "u64*", "[rows] on pages: first page << 32 | neighbours"),
        Field("pages", "u32*", "[pages][PAGE_COLUMNS + 1] rows of neighbours, and the number of the next page"),
        Field("free_pages", "u32*", "[1 + pages] how many pages are free, and a stack of these"),
        Field("keys", "const u64*", "edges to insert or to delete, ascending: row << 32 | neighbour"),
        Field("labels", "i32*", "[rows] distances, -1 unreached"),
        Field("parents", "u32*", "[rows]; null if no parents are recorded"),
        Field("bitmask", "u8*", "[rows / 32 + 1] words, bits of visited rows"),
        Field(
            "flags",
            "u8*",
            "[2][rows] frontier of this level, and of the next; or [rows] classes; or an update's edges to leave out; "
            "or the owners of an edge queue's entries",
        ),
        Field("in_ids", "const u32*", "input queue, or the bits of the frontier"),
        Field("in_parents", "const u32*", "parents of its entries; null for a vertex queue"),
        Field("out_ids", "u32*", "output queue, or the bits of the next frontier"),
        Field("out_parents", "u32*", "parents of its entries; null for a vertex queue"),
        Field("counters", "u64*", "zero before the launch"),
        Field(
            "before",
            "const u64*",
            "counters of the launch that filled the input queue; null if it holds in_size; or the ends of a bin",
        ),
        Field("start", "const u64*", "[COUNTERS] what the host says of a chain: QUEUED, START_DISTANCE, START_LAUNCH"),
        Field(
            "tile_sums",
            "u64*",
            "[tiles] a word for each tile of the input queue, see InOrder in block.cuh; or [owners][blocks] entries, "
            "or their running sums; or [edges] how often an update's edges are there; or keys of all edges",
        ),
        Field("in_size", "u64", "entries of the input queue; with `before`, entries that it holds"),
        Field("out_capacity", "u64", "entries that the output queue holds"),
        Field("barrier", "u32*", "arrivals of blocks at the grid's barrier; zero before the launch"),
        Field("least", "u64", "shortest input queue, or smallest frontier, that a launch takes"),
        Field("most", "u64", "the longest that it takes"),
        Field("rows", "u32"),
        Field("distance", "u32", "the label of this launch's discoveries, above the start's"),
        Field("gathering", "u32", "a Gathering"),
        Field("status", "u32", "a Status"),
        Field("culling", "u32", "a Culling"),
        Field("tiles", "u32", "a Tiles"),
        Field("neighbours", "u32", "a Neighbours"),
        Field("storage", "u32", "a Storage"),
        Field("width", "u32", "lanes of a virtual warp"),
        Field("launch", "u32", "a number, above the start's, that no other launch of the last 2^22 has"),
        Field("grid_degree", "u32", "neighbours from which the whole grid, or a child kernel, walks a list"),
        Field("levels", "u32", "the most levels of a launch of several levels; each has a row of counters"),
        Field("most_blocks", "u32", "the most blocks of a launch by a kernel"),
        Field("most_children", "u32", "the most kernels that a launch launches for long lists"),
        Field("first_id", "u32", "internal id of the rank's first vertex, of several ranks"),
        Field("owners", "u32", "number of ranks that bins are for; each has `rows` vertices"),
    ),
)

ARGUMENTS: "Final[np.dtype[Any]]" = _ARGUMENTS.dtype

HEADER: Final = header(
    constants={
        "CLASSES": CLASSES,
        "COUNTERS": COUNTERS,
        "PAGE_COLUMNS": PAGE_COLUMNS,
        "START_DISTANCE": START_DISTANCE,
        "START_LAUNCH": START_LAUNCH,
    },
    scoped=(Gathering, Status, Culling, Tiles, Neighbours, Storage),
    indexes=(LabCounter,),
    structs=(_ARGUMENTS,),
)
