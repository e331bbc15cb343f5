"""What Numba has no function for: atomic words in shared memory, giving up the core, counting trailing zeros.

The atomics work on elements of an int64 array, which may lie in memory that several processes map. Eight aligned bytes
are read and written whole on every 64-bit processor; the orderings are those of C11.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_ALIGNMENT = 8

yield_core = types.ExternalFunction("sched_yield", types.int32())


def _element(context, builder, array_type, array, index):
    """Pointer to one element."""
    holder = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, holder, [index], wraparound=False)


@intrinsic
def load_acquire(typingctx, array, index):
    """``array[index]``; what its writer wrote before ``store_release`` is visible afterwards."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(pointer, "acquire", _ALIGNMENT)

    return types.int64(array, types.int64), generate


@intrinsic
def store_release(typingctx, array, index, value):
    """``array[index] = value``, after everything written before it."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], pointer, "release", _ALIGNMENT)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def compare_exchange(typingctx, array, index, expected, value):
    """Set ``array[index]`` to ``value`` if it is ``expected``; returns what was there."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        result = builder.cmpxchg(pointer, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(result, 0)

    return types.int64(array, types.int64, types.int64, types.int64), generate


@intrinsic
def trailing_zeros(typingctx, word):
    """Number of the lowest set bit of a uint32 that is not zero."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint32(types.uint32), generate
