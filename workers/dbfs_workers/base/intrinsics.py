"""Operations that Numba lacks: atomic words in shared memory, sleeping on such words, and prefetches.

The atomics work on elements of an int64 array, which may lie in memory that several processes map. Every 64-bit
processor reads and writes eight aligned bytes as a whole. The orderings are those of C11.
"""

import ctypes
import itertools
import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy import uint32, uint64

from dbfs_workers.base.jit import INT64, READ_INT64, TWINS, int64, kernel, void

_ALIGNMENT = 8

_system_call = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))
# Number of the futex system call by processor; 0 for other processors.
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1

_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_CLOCK_MONOTONIC = 1
_sched_yield = types.ExternalFunction("sched_yield", types.int32())

_send = types.ExternalFunction("send", types.int64(types.int32, types.int64, types.int64, types.int32))
_recv = types.ExternalFunction("recv", types.int64(types.int32, types.int64, types.int64, types.int32))
_poll = types.ExternalFunction("poll", types.int32(types.int64, types.int64, types.int32))
_DO_NOT_WAIT, _NO_SIGNAL = 0x40, 0x4000
_READABLE = 1


@kernel(int64, INT64)
def monotonic_ns(clock):
    """Return the nanoseconds of the monotonic clock, that of ``time.perf_counter()``.

    ``clock`` is int64[2] or longer, scratch space.
    """
    _clock_gettime(_CLOCK_MONOTONIC, clock.ctypes.data)
    return clock[0] * 1_000_000_000 + clock[1]


@kernel(int64, INT64)
def yield_core(clock):
    """Give up the core to other threads that wait for it; return the nanoseconds until this one ran again.

    ``clock`` is int64[4], scratch space for two times.
    """
    _clock_gettime(_CLOCK_MONOTONIC, clock.ctypes.data)
    _sched_yield()
    _clock_gettime(_CLOCK_MONOTONIC, clock.ctypes.data + 16)
    return (clock[2] - clock[0]) * 1_000_000_000 + clock[3] - clock[1]


@kernel(void, INT64, int64, int64, READ_INT64)
def sleep_while(words, index, value, timeout):
    """Sleep while the low half of ``words[index]`` is that of ``value``, at most ``timeout`` (seconds, nanoseconds).

    The call may return early, and sleeps on if the high half alone has changed. Callers read the word again.
    """
    address = words.ctypes.data + 8 * index
    _system_call(FUTEX, address, _FUTEX_WAIT, value & 0xFFFFFFFF, timeout.ctypes.data, 0, 0)


@kernel(void, INT64, int64)
def wake(words, index):
    """Wake all threads, of any process, that sleep on ``words[index]``."""
    _system_call(FUTEX, words.ctypes.data + 8 * index, _FUTEX_WAKE, 0x7FFFFFFF, 0, 0, 0)


@kernel(int64, int64, READ_INT64, int64, int64)
def send_now(descriptor, buffer, start, stop):
    """Send bytes ``start`` to ``stop`` of a buffer without waiting; return how many were sent, or -1.

    -1 means that the connection takes nothing now, or is broken.
    """
    return _send(types.int32(descriptor), buffer.ctypes.data + start, stop - start, _DO_NOT_WAIT | _NO_SIGNAL)


@kernel(int64, int64, INT64, int64, int64)
def receive_now(descriptor, buffer, start, stop):
    """Receive into bytes ``start`` to ``stop`` of a buffer without waiting; return how many bytes came.

    0 means that the other end closed the connection; -1 that nothing has come, or that the connection is broken.
    """
    return _recv(types.int32(descriptor), buffer.ctypes.data + start, stop - start, _DO_NOT_WAIT)


@kernel(void, INT64, int64)
def wait_for_readable(polled, milliseconds):
    """Wait at most some milliseconds until a connection has received something or is broken.

    Args:
        polled: int64, an element a connection: its descriptor, or a negative number for none. Overwritten.
        milliseconds: the longest wait.
    """
    # The system's ``struct pollfd`` is a descriptor of 32 bits and the events in the upper half of the element.
    for i in range(polled.size):
        polled[i] = (polled[i] & 0xFFFFFFFF) | _READABLE << 32
    _poll(polled.ctypes.data, polled.size, types.int32(milliseconds))


def _element(context, builder, array_type, array, index):
    """Return a pointer to one element."""
    holder = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, holder, [index], wraparound=False)


@intrinsic
def load_acquire(typingctx, array, index):
    """Return ``array[index]``. Afterwards all writes that preceded the ``exchange`` of this value are visible."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(pointer, "acquire", _ALIGNMENT)

    return types.int64(array, types.int64), generate


def _read_modify_write(operation, array, index, value):
    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw(operation, pointer, arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def exchange(typingctx, array, index, value):
    """Set ``array[index]`` and return its old value; no memory access moves across this one."""
    return _read_modify_write("xchg", array, index, value)


@intrinsic
def fetch_add(typingctx, array, index, value):
    """Add to ``array[index]`` and return its old value; no memory access moves across this one."""
    return _read_modify_write("add", array, index, value)


@intrinsic
def compare_exchange(typingctx, array, index, expected, value):
    """Set ``array[index]`` to ``value`` if it is ``expected``; return its old value."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        result = builder.cmpxchg(pointer, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(result, 0)

    return types.int64(array, types.int64, types.int64, types.int64), generate


@intrinsic
def fetch_or(typingctx, words, index, bits):
    """Set bits of ``words[index]``, unsigned, and return its old value. Other memory accesses may move across this."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("or", pointer, arguments[2], "monotonic")

    return words.dtype(words, types.int64, words.dtype), generate


@intrinsic
def acquire_bits(typingctx, words, index, bits):
    """Set bits of ``words[index]``, unsigned, and return its old value. Later memory accesses stay behind this one."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("or", pointer, arguments[2], "acquire")

    return words.dtype(words, types.int64, words.dtype), generate


@intrinsic
def store_release(typingctx, words, index, value):
    """Write ``words[index]``. Earlier memory accesses stay before this one."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], pointer, "release", signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, words.dtype), generate


@intrinsic
def from_words(typingctx, words, kind):
    """Return the named tuple of a Numba type that int64 words hold: an array is its address and its size.

    Fields that are named tuples have their own fields in their place.
    """
    made = kind.instance_type

    def generate(context, builder, signature, arguments):
        places = itertools.count()

        def word():
            place = context.get_constant(types.intp, next(places))
            return builder.load(_element(context, builder, signature.args[0], arguments[0], place))

        def value(of):
            if isinstance(of, types.BaseTuple):
                return context.make_tuple(builder, of, [value(each) for each in of.types])
            if not isinstance(of, types.Array):
                return word()
            array, item = context.make_array(of)(context, builder), context.get_data_type(of.dtype)
            address, size = builder.inttoptr(word(), item.as_pointer()), word()
            step = context.get_constant(types.intp, context.get_abi_sizeof(item))
            populate_array(array, address, [size], [step], step, None)
            return array._getvalue()

        return value(made)

    return made(words, kind), generate


@intrinsic
def trailing_zeros(typingctx, word):
    """Return the index of the lowest set bit of a uint32, which must not be 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint32(types.uint32), generate


@intrinsic
def load_word(typingctx, address):
    """Return the eight bytes from an address on as a uint64, the first byte lowest."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(64)))
        return builder.load(pointer, align=1)

    return types.uint64(types.int64), generate


@intrinsic
def prefetch(typingctx, array, index):
    """Have the processor load the cache line of ``array[index]``, without a wait for it. Any index is allowed."""

    def generate(context, builder, signature, arguments):
        pointer = _element(context, builder, signature.args[0], *arguments)
        kinds = [cgutils.voidptr_t, *(ir.IntType(32),) * 3]
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0"
        )
        # To read; into all levels of the cache; data.
        pointer = builder.bitcast(pointer, cgutils.voidptr_t)
        builder.call(function, [pointer, *(ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def load_byte(typingctx, address):
    """Return the byte at an address as a uint64."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(8)))
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.uint64(types.int64), generate


@intrinsic
def byte_swap(typingctx, word):
    """Return a uint64 with its eight bytes reversed."""

    def generate(context, builder, signature, arguments):
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def folded_product(typingctx, word, factor):
    """Return the two halves of the 128-bit product of two uint64, combined by exclusive or."""

    def generate(context, builder, signature, arguments):
        wide = [builder.zext(argument, ir.IntType(128)) for argument in arguments]
        product = builder.mul(*wide)
        high = builder.lshr(product, ir.Constant(ir.IntType(128), 64))
        return builder.trunc(builder.xor(product, high), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


def _product_halves(word: int, factor: int) -> int:
    product = int(word) * int(factor)
    return product >> 64 ^ product & (1 << 64) - 1


TWINS.update(
    {
        trailing_zeros: lambda word: uint32((int(word) & -int(word)).bit_length() - 1),
        prefetch: lambda array, index: None,  # noqa: ARG005
        load_word: lambda address: uint64(ctypes.c_uint64.from_address(int(address)).value),
        load_byte: lambda address: uint64(ctypes.c_uint8.from_address(int(address)).value),
        byte_swap: lambda word: word.byteswap(),
        folded_product: lambda word, factor: uint64(_product_halves(word, factor)),
    }
)
