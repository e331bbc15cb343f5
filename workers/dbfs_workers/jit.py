"""The decorator that compiles every CPU kernel of the project, and the array types for its signatures.

Signatures are explicit, so that a module's kernels are compiled (or loaded from Numba's cache on disk) when the module
is imported, never in the middle of a level. An array that a kernel only reads is declared read-only, because arrays
received over a Dask comm are read-only, and Numba refuses them for a writable parameter.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
from numba import types

Function = Callable[..., Any]

FLOAT64 = types.Array(types.float64, 1, "C")
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
    """Compile a function for one signature, given as the Numba types of its result and its arguments.

    The kernel releases the GIL, so that the worker's event loop runs on. The kernel may not allocate arrays. So Numba
    counts no references to arrays: the count is atomic, and takes longer than a short kernel's work.
    """
    assert not isinstance(result, types.Array), "kernels that return arrays are allocating kernels"
    return _compiled(result, arguments, _nrt=False)


def allocating_kernel(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function that allocates arrays, or returns one; see ``kernel``.

    Other kernels may call an allocating kernel. They must not call one that returns new memory: no caller frees memory.
    """
    return _compiled(result, arguments)


def _compiled(result: Any, arguments: tuple[Any, ...], **options: bool) -> Callable[[Function], Function]:
    return cast("Callable[[Function], Function]", numba.njit(result(*arguments), cache=True, nogil=True, **options))
