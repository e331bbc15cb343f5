"""Constants, enums and structs that kernels and host share, declared once.

In: the enums of ``run.py``. Out: NumPy dtypes for the host, and ``HEADER``, the C++ header ``generated/layout.cuh``
that NVRTC gets in memory beside the files of ``kernels/``. To read it::

    python -c "from dbfs_workers.search.cuda.layout import HEADER; print(HEADER)"
"""

import enum
from typing import Final

from dbfs_workers.search.cuda.run import Direction, Mode, Reason, Step
from dbfs_workers.search.cuda.structs import Field, Struct, header
from dbfs_workers.search.direction import SPARE_EDGES

HEADER_NAME: Final = "generated/layout.cuh"

LEADER: Final = 0  # the rank that runs leader levels
MAX_RANKS: Final = 8  # a warp carries the flags of all ranks: 8 ranks of 4 words
FLAG_WORDS: Final = 4
FLAG_SLOTS: Final = 4  # a rank is at most one barrier ahead of another; two slots would do
LARGE_DEGREE: Final = 256  # a vertex with more neighbours is cut into chunks, one warp each
CHUNK_EDGES: Final = 512
TABLE_DEGREE: Final = 8  # most neighbours of a vertex besides itself in a graph with a table of them
GROUP_ROWS: Final = 128  # neighbouring rows that may have a common degree (``search/cuda/kernels/common/groups.cuh``)
FEW_SOURCES: Final = 16  # sources that travel in the kernel's argument
LEVEL_SLOTS: Final = 4  # level counters: being made, read, reported and cleared, idle
SETTLE_SLOTS: Final = 3
LINE_BYTES: Final = 128  # a cache line
# The status word of a run: reason in the lowest 8 bits, then the rank, the step, 8 blank bits and the level.
STATUS_RANK: Final = 8
STATUS_STEP: Final = 16
STATUS_LEVEL: Final = 32
# A word of a record: 48 bits of value below a tag, which is the level's lowest 15 bits and a bit that is always set.
TAG_SHIFT: Final = 48
TAG_LEVEL: Final = 0x7FFF
TAG_SET: Final = 0x8000


class Counter(enum.IntEnum):
    """Counters of a level, each on a cache line of its own: atomics on one line queue behind each other.

    From ``SENT`` on there is one for each rank, of the vertices sent to that rank.
    """

    SMALL = 0
    CHUNKS = 1
    SENT = 2


class Total(enum.IntEnum):
    """Totals of a level, summed in shared memory and added once a block: its statistics and its termination.

    ``EXPANDED`` counts the frontier of light levels of several ranks, ``INSPECTED`` the edges of bottom-up levels.
    """

    DISCOVERED = 0
    EDGES = 1
    TARGETS = 2
    EXPANDED = 3
    INSPECTED = 4


TOTALS: Final = Counter.SENT + MAX_RANKS  # line of the first total, behind the counters
TOTAL_COUNT: Final = len(Total)

_CSR: Final = Struct(
    "Csr",
    "Adjacency lists of one rank.",
    (Field("offsets", "const i64*", "[n_local + 1]"), Field("columns", "const u32*", "internal ids")),
)
_PEER: Final = Struct(
    "Peer",
    "Memory that one rank exports to its peers, as mapped into this rank's address space.",
    (
        Field("inbox", "u32*", "[2][ranks][bin_capacity] rows on that rank, by level parity and sender"),
        Field("inbox_parents", "u32*", "the same shape, internal ids of the parents"),
        Field("flags", "u64*", "[kFlagSlots][kMaxRanks][kFlagWords]"),
        Field("visited", "u32*", "[words] a bit for every internal id that the rank has seen"),
        Field("frontier", "u32*", "[2][words] frontier bitmaps, the current one and the next"),
        Field("parents", "u32*", "[ranks * n_local] parents that the rank chose; its own slice is its predecessors"),
        Field("distances", "i32*", "[n_local]"),
        Field("leader_queue", "u32*", "[2][leader_capacity] internal ids: the queues of leader levels"),
        Field("leader_parents", "u32*", "the same shape, internal ids of the parents"),
        Field("out", _CSR, "mapped on the leader only; null elsewhere, except a rank's own"),
    ),
)
_RECORD: Final = Struct(
    "LevelRecord",
    "One level, as reported to the host. Each word is tag:16 | value:48 (statistics.cuh): a word that bears the tag of "
    "its level is complete by itself, so the host needs no order among the words. A kernel of one rank writes the "
    "first kRecordWordsSingle words only. Runs that count degrees (degree_sums.cuh) have no light levels, and their "
    "counts are exact. The counts of other runs are made from the labels after the run.",
    (
        Field("frontier", "u64", "vertices expanded; rough, for progress"),
        Field("looked_at", "u64", "edges looked at in a bottom-up level"),
        Field("discovered", "u64", "vertices; rough in light levels, for progress"),
        Field("cycles", "u64", "device clock"),
        Field("mode", "u64", "a Mode"),
        Field("edges", "u64", "out-edges of the vertices discovered, in runs that count degrees"),
        Field("sent", "u64", "several ranks: vertices sent in bins; in a dense level, parents read from others"),
        Field("found", "u64", "several ranks, bins: vertices found for any rank, before their owners looked"),
    ),
    # A cache line of the host.
    least_alignment=64,
)
# Words of a record that a kernel of one rank writes, and one of several.
RECORD_WORDS_SINGLE: Final = 6
RECORD_WORDS_GANG: Final = len(_RECORD.fields)
_HOST_VIEW: Final = Struct(
    "HostView",
    "Pinned host memory, mapped. The host writes `abort` and `drained`, the device the rest.",
    (
        Field("abort", "u64", "nonzero: leave the kernel"),
        Field("drained", "u64", "levels whose records the host has taken"),
        Field("status", "u64", "reason:8 | rank:8 | step:8 | blank:8 | level:32"),
        Field("level", "u64", "levels reported"),
        Field("levels", "u64", "levels of the finished run"),
        Field("leader_levels", "u64", "levels that the leader ran before this rank's first; 0 on the leader"),
        Field("source_rows", "u64", "sources of this rank"),
        Field("source_edges", "u64", "their out-edges"),
        Field("begin_ns", "u64", "the kernel started"),
        Field("reset_ns", "u64", "this rank's state was cleared"),
        Field("gate_ns", "u64", "all ranks had placed their sources"),
        Field("end_ns", "u64", "the last level ended"),
        Field("gate_cycles", "u64", "device clock at `gate_ns`"),
        Field("end_cycles", "u64", "device clock at `end_ns`"),
        Field("records", _RECORD, "[stats_capacity] in fact: a ring, a power of two", count=1),
    ),
)
_LINE: Final = Struct("Line", "A counter on a cache line of its own.", (Field("value", "u64"),), LINE_BYTES)
_SLOT: Final = Struct(
    "Slot",
    "The counters and totals of one level.",
    (Field("lines", _LINE, "by Counter, then from kTotals on by Total", count=TOTALS + TOTAL_COUNT),),
)
_CONTROL: Final = Struct(
    "Control",
    "This rank's own device memory, kept between runs.",
    (
        Field(
            "barriers",
            _LINE,
            "queued:32 | kept:16 | arrivals:16, whose top bit turns when all blocks have come; the upper fields count "
            "light discoveries. Two words alternate: a fast block may arrive at the next barrier before a slow one has "
            "read this sum.",
            count=2,
        ),
        Field("gang_barrier", _LINE, "arrivals:16 only, of the barriers that all ranks pass"),
        Field("stop", _LINE, "status word of the first block that gave up, else 0"),
        Field("epoch", _LINE, "gang barriers passed so far, the same on all ranks"),
        Field("slots", _SLOT, count=LEVEL_SLOTS + SETTLE_SLOTS),
    ),
)
_PARAMS: Final = Struct(
    "Params",
    "The argument of the resident kernel.",
    (
        Field("peers", _PEER, "by rank, this one included", count=MAX_RANKS),
        Field("out", _CSR),
        Field("in", _CSR),
        Field("hubs", "const u32*", "[n_local] one in-neighbour (the best: a hub), kNoVertex without"),
        Field("distances", "i32*", "[n_local]"),
        Field("known", "u32*", "[words_local] rows labelled so far, and rows that no edge leads to"),
        Field("closed", "const u32*", "[words_local] rows without in-edges, or null"),
        Field("table", "const u32*", "[n_local << table_log] other neighbours by row, kNoVertex past them, or null"),
        Field("common", "const u32*", "[rows_used / kGroupRows] common degrees, or null: the run counts no degrees"),
        Field("queues", "u32*", "rows", count=2),
        Field("queue_parents", "u32*", "internal ids: parents of rows queued before they are labelled", count=2),
        Field("chunks", "u64*", "row:32 | chunk:32", count=2),
        Field("control", "Control*"),
        Field("host", "HostView*"),
        Field("sources", "const u32*", "[source_count] internal ids of more than kFewSources sources"),
        Field("target_bits", "const u32*", "[words_local], or null"),
        Field("target_total", "u64", "targets on all ranks"),
        Field("edges_total", "u64", "directed edges on all ranks"),
        Field("vertices_total", "u64", "vertices with an edge, on all ranks"),
        Field("timeout_ns", "u64"),
        Field("sparse_edges", "u64", "a frontier with more edges is expanded into the bitmap"),
        Field("source_count", "u32"),
        Field("rank", "u32"),
        Field("ranks", "u32"),
        Field("n_local", "u32"),
        Field("words_local", "u32", "n_local / 32"),
        Field("rows_used", "u32", "rows up to the last with an edge"),
        Field("bin_capacity", "u32"),
        Field("max_depth", "u32"),
        Field("max_degree", "u32", "on all ranks"),
        Field("direction", Direction),
        Field("stats_capacity", "u32", "records of the ring"),
        Field("light", "u32", "1 + log2 of the lanes that share a vertex in light levels; 0: no light levels"),
        Field("table_log", "u32", "log2 of the words of a row of the table: 2 or 3"),
        Field("leader_vertices", "u32", "longest frontier of a leader level; 0: no leader levels"),
        Field("leader_capacity", "u32", "length of a leader queue"),
        Field("alpha", "float"),
        Field("beta", "float"),
        Field("reset_rows", "u32", "rows to clear at the start"),
        Field("few_sources", "u32", "internal ids of kFewSources sources or fewer", count=FEW_SOURCES),
    ),
)

CSR: Final = _CSR.dtype
PEER: Final = _PEER.dtype
RECORD: Final = _RECORD.dtype
PARAMS: Final = _PARAMS.dtype
HOST_HEADER: Final = _HOST_VIEW.before("records")
HEADER: Final = header(
    # All numbers of this module.
    {"SPARE_EDGES": SPARE_EDGES}
    | {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)},
    scoped=(Direction, Mode, Step, Reason),
    indexes=(Counter, Total),
    structs=(_CSR, _PEER, _RECORD, _HOST_VIEW, _LINE, _SLOT, _CONTROL, _PARAMS),
)
CONTROL_BYTES: Final = _CONTROL.nbytes
