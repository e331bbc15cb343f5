"""The device structs of ``types.cuh`` as NumPy dtypes, field by field.

A mirror of the wrong size does not compile (``resident.cu``).
"""

from typing import Final

import numpy as np

LEADER: Final = 0
MAX_RANKS: Final = 8
FLAG_WORDS: Final = 4
FLAG_SLOTS: Final = 4
LINE_BYTES: Final = 128
COUNTERS: Final = 2 + MAX_RANKS
TOTALS: Final = 5
LARGE_DEGREE: Final = 256
CHUNK_EDGES: Final = 512

CSR: Final = np.dtype([("offsets", np.uint64), ("columns", np.uint64)])
WINDOW_FIELDS: Final = (
    *("inbox", "inbox_parents", "flags", "visited", "frontier", "parents"),
    *("distances", "led", "led_parents"),
)
PEER: Final = np.dtype([*((name, np.uint64) for name in WINDOW_FIELDS), ("out", CSR)])
RECORD_FIELDS: Final = ("frontier", "looked_at", "discovered", "cycles", "mode", "sent", "found")
_HOST_FIELDS: Final = (
    *("abort", "drained", "status", "level", "levels", "led"),
    *("begin_ns", "reset_ns", "gate_ns", "end_ns", "gate_cycles", "end_cycles"),
)


def _words(fields: tuple[str, ...], itemsize: int) -> "np.dtype[np.void]":
    return np.dtype(
        {
            "names": fields,
            "formats": [np.uint64] * len(fields),
            "offsets": range(0, 8 * len(fields), 8),
            "itemsize": itemsize,
        }
    )


# Records lie on cache lines of 64 bytes.
RECORD: Final = _words(RECORD_FIELDS, 64)
HOST_HEADER: Final = _words(_HOST_FIELDS, 128)
# Words of a record that a kernel writes: alone, or in a gang.
RECORD_WORDS: Final = (5, 7)
PARAMS: Final = np.dtype(
    [
        ("peers", PEER, (MAX_RANKS,)),
        ("out", CSR),
        ("in", CSR),
        ("first_in", np.uint64),
        ("distances", np.uint64),
        ("known", np.uint64),
        ("closed", np.uint64),
        ("queues", np.uint64, (2,)),
        ("queue_parents", np.uint64, (2,)),
        ("chunks", np.uint64, (2,)),
        ("control", np.uint64),
        ("host", np.uint64),
        ("sources", np.uint64),
        ("target_bits", np.uint64),
        ("target_total", np.uint64),
        ("edges_total", np.uint64),
        ("vertices_total", np.uint64),
        ("timeout_ns", np.uint64),
        ("sparse_edges", np.uint64),
        ("source_count", np.uint32),
        ("rank", np.uint32),
        ("ranks", np.uint32),
        ("n_local", np.uint32),
        ("words_local", np.uint32),
        ("rows_used", np.uint32),
        ("bin_capacity", np.uint32),
        ("max_depth", np.uint32),
        ("max_degree", np.uint32),
        ("direction", np.uint32),
        ("stats_capacity", np.uint32),
        ("light", np.uint32),
        ("led_vertices", np.uint32),
        ("led_capacity", np.uint32),
        ("alpha", np.float32),
        ("beta", np.float32),
        ("reset_rows", np.uint32),
    ],
    align=True,
)
# Three barriers, stop and epoch, a cache line each; then the slots of counters and totals.
SLOTS: Final = 7
CONTROL_BYTES: Final = LINE_BYTES * (5 + SLOTS * (COUNTERS + TOTALS))

SIZES: Final = {
    "DBFS_SIZEOF_PARAMS": PARAMS.itemsize,
    "DBFS_SIZEOF_CONTROL": CONTROL_BYTES,
    "DBFS_SIZEOF_HOST_VIEW": HOST_HEADER.itemsize + RECORD.itemsize,
}
