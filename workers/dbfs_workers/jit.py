"""The one way this project compiles a CPU kernel.

Signatures are explicit, so a module's kernels are compiled (or loaded from Numba's cache on disk) when it is imported,
never in the middle of a level. Arrays that a kernel only reads are declared read-only: what arrives over a Dask comm is
read-only, and Numba would otherwise refuse it.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
from numba import types

Function = Callable[..., Any]

INT32 = types.Array(types.int32, 1, "C")
INT64 = types.Array(types.int64, 1, "C")
UINT16 = types.Array(types.uint16, 1, "C")
UINT32 = types.Array(types.uint32, 1, "C")
READ_INT32 = types.Array(types.int32, 1, "C", readonly=True)
READ_INT64 = types.Array(types.int64, 1, "C", readonly=True)
READ_UINT16 = types.Array(types.uint16, 1, "C", readonly=True)
READ_UINT32 = types.Array(types.uint32, 1, "C", readonly=True)
int64 = types.int64
void = types.void


def kernel(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for one signature: its result's and its arguments' Numba types."""
    return cast("Callable[[Function], Function]", numba.njit(result(*arguments), cache=True, nogil=True))
