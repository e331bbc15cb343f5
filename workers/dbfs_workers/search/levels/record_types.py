"""The records of ``state`` as kernels take them, and its functions as kernels call them."""

from typing import Final

import numba
from numba import types
from numba.extending import register_jitable

from dbfs_workers.search import direction
from dbfs_workers.search.levels import state
from dbfs_workers.search.reports import ROW as _ROW

STATES: Final = types.Array(numba.from_dtype(state.STATE), 1, "C")
"""``State.record``."""

STATE: Final = STATES.dtype
"""Its one element."""

ROWS: Final = types.Array(numba.from_dtype(_ROW), 1, "C")
"""Rows of the table of levels."""

ROW: Final = ROWS.dtype
"""One of them."""

for function in (
    *(direction.bottom_up_pays, direction.expected_search_share, direction.looks_at_fewer, state.bound_frontier),
    *(state.choose, state.end_level, state.is_small, state.may_pay, state.over, state.choose_direction),
):
    register_jitable(function)
