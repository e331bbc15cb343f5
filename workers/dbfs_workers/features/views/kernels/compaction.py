"""CPU kernels of a filter: the places of the edges that pass, and the adjacency lists of these.

One walk over the places writes the edges' rows and columns, and counts self-loops and repeats on the way. So no array
of all edges, and none of the edges' rows, is made. An edge that passes costs 8 bytes written and read for its place,
and 4 read and 4 written for its column.
"""

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import trailing_zeros
from dbfs_workers.base.jit import INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void


@kernel(void, READ_UINT32, int64, INT64, plain=True)
def place(words, first, places):
    """Write the places of the set bits of some words, of which the lowest bit has the place ``first``."""
    k = 0
    for word in range(words.size):
        todo = words[word]
        while todo:
            places[k] = first + word * 32 + np.int64(trailing_zeros(todo))
            todo &= todo - np.uint32(1)
            k += 1


@kernel(types.UniTuple(int64, 2), READ_INT64, READ_UINT32, READ_INT64, int64, INT64, UINT32, plain=True)
def compact(row_offsets, columns, places, first_id, kept_offsets, kept_columns):
    """Write the rows and columns of the edges at some ascending places; return their self-loops and repeats.

    ``first_id`` is the internal id of the first row. A repeat has the column of the edge before it in its row.
    """
    loops = repeats = k = 0
    for row in range(row_offsets.size - 1):
        kept_offsets[row] = k
        end, before = row_offsets[row + 1], np.int64(-1)
        while k < places.size and places[k] < end:
            column = np.int64(columns[places[k]])
            kept_columns[k] = column
            loops += column == first_id + row
            repeats += column == before
            before = column
            k += 1
    kept_offsets[row_offsets.size - 1] = k
    return loops, repeats
