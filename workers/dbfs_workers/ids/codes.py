"""Distinct ids: ids as codes into their distinct ids, and the ascending order of these."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError
from dbfs_workers.ids.table import joined, nbytes, ranges_of, sort_keys, take

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids

MOST_SMALL_IDS = 2**32
"""Vertices whose ids fit a uint32."""

# No caller can choose ids whose hashes collide.
_SEED = np.uint64(secrets.randbits(64))
_ODD_SEED = _SEED | np.uint64(1)

# Slots of the smallest hash table: a power of 2.
_LEAST_SLOTS = 1 << 10

# Codes are int32.
_MOST_CODES = 1 << 31

# Bits of a digit by which integers are sorted at a time: the ends of as many lists fit the processor's first cache.
_DIGIT_BITS = 11

# Strings encoded at a time.
_PART_STRINGS = 1 << 14


class IdCodes(Protocol):
    """Codes of ids of one type: indices into the distinct ids so far, in the order in which they occur first."""

    @property
    def count(self) -> int:
        """Number of distinct ids so far."""

    def growth(self, ids: Any) -> int:
        """Return the bytes that encoding these ids takes at most."""

    def encode(self, ids: Any) -> NDArray[np.int32]:
        """Return the code of each id; ids that are new get the next codes.

        Raises:
            GraphTooLargeError: there are more than 2^31 distinct ids.
        """

    def distinct(self) -> Any:
        """Return the distinct ids, by code."""


def encode(
    parts: Iterable[Ids], require: Callable[[int], None] = lambda _: None
) -> tuple[list[NDArray[np.int32]], Ids]:
    """Return the codes of each part (at least one part), and the distinct ids of all parts, which the codes index.

    The distinct ids are in the order in which they occur first. Parts are taken one by one, and not kept. A distinct
    integer takes 8 bytes, and a distinct string its bytes and 8 more; either takes 11 to 22 bytes in a hash table. A
    distinct tuple takes its own bytes and those of its key, a string.

    Args:
        parts: the ids, all of one type.
        require: called with the bytes that the next step takes at most.

    Errors as for ``IdCodes.encode``.
    """
    found: IdCodes | None = None
    codes = list[NDArray[np.int32]]()
    for part in parts:
        if found is None:
            found = codes_for(part)
        require(found.growth(part))
        codes.append(found.encode(part))
    assert found is not None
    return codes, found.distinct()


def codes_for(part: Ids) -> IdCodes:
    """Return the codes, none yet, of ids of the type of a part."""
    if isinstance(part, np.ndarray):
        return _IntegerCodes()
    import pyarrow as pa

    return _TupleCodes() if pa.types.is_struct(part.type) else _StringCodes()


class _IntegerCodes:
    """The codes of integers: a hash table that grows with the number of distinct integers. See ``IdCodes``."""

    def __init__(self) -> None:
        self.count = 0
        self._narrow = True
        self._table = np.zeros(_LEAST_SLOTS, np.uint64)
        self._distinct = np.empty(self._most, np.int64)

    def growth(self, ids: NDArray[np.int64]) -> int:
        # The codes, and copies of the hash table and the distinct integers that have grown.
        return 30 * self.count + 44 * ids.size

    def encode(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        # Imported here because the import compiles kernels.
        from dbfs_workers.ids.kernels import integers as kernels

        if self._narrow and ids.size and ids.max() >= MOST_SMALL_IDS:
            self._narrow = False
            self._table[:] = 0
            kernels.place_codes(self.distinct(), _SEED, self._table)
        codes, start = np.empty(ids.size, np.int32), 0
        while start < ids.size:
            # With fewer free slots each call would take few integers.
            free = self._most - self.count
            if free < min(ids.size - start, self._most // 4) and self._most < _MOST_CODES:
                self._grow()
                continue
            _require_codes(self.count + (free == 0))
            part = slice(start, start + free)
            self.count = kernels.encode_integers(
                ids[part], _SEED, self._narrow, self._table, codes[part], self._distinct, self.count
            )
            start += free
        return codes

    def distinct(self) -> NDArray[np.int64]:
        """Return the distinct integers, by code: a view."""
        # The rest was never written, and so takes no memory.
        return self._distinct[: self.count]

    @property
    def _most(self) -> int:
        """Most distinct integers that the table may have: it is never more than 3/4 full."""
        return min(3 * self._table.size // 4, _MOST_CODES)

    def _grow(self) -> None:
        from dbfs_workers.ids.kernels import integers as kernels

        slots = 2 * self._table.size
        if self._narrow:
            table = np.zeros(slots, np.uint64)
            kernels.widen_table(self._table, _SEED, table)
            self._table = table
        else:
            # Frees the table before the next one is made.
            del self._table
            self._table = np.zeros(slots, np.uint64)
            kernels.place_codes(self.distinct(), _SEED, self._table)
        self._distinct = _longer(self._distinct, self.count, self._most)


class _StringCodes:
    """The codes of strings: a hash table that grows with the number of distinct strings. See ``IdCodes``."""

    def __init__(self) -> None:
        self.count = 0
        self._table = np.zeros(_LEAST_SLOTS, np.uint64)
        self._offsets, self._held = np.zeros(_LEAST_SLOTS, np.int64), np.empty(0, np.uint8)

    def growth(self, ids: Any) -> int:
        # The codes; and copies of the hash table, the offsets and the strings that have grown.
        return 60 * (self.count + len(ids)) + 2 * (int(self._offsets[self.count]) + nbytes(ids))

    def encode(self, ids: Any) -> NDArray[np.int32]:
        """Return the code of each string of an Arrow array of ``large_string`` or ``large_binary``."""
        # Imported here because the import compiles kernels.
        from dbfs_workers.ids.kernels import strings as kernels

        offsets, data = _bytes(ids)
        codes = np.empty(len(ids), np.int32)
        # In parts, so that strings that occur often take no more room than rare ones.
        for start in range(0, codes.size, _PART_STRINGS):
            part = slice(start, min(start + _PART_STRINGS, codes.size))
            self._make_room(part.stop - start, int(offsets[part.stop] - offsets[start]))
            self.count = kernels.encode_strings(
                offsets[start : part.stop + 1],
                data,
                _ODD_SEED,
                self._table,
                codes[part],
                self._offsets,
                self._held,
                self.count,
            )
        return codes

    def distinct(self) -> Any:
        """Return the distinct strings, by code, as an Arrow array of ``large_string``."""
        import pyarrow as pa

        offsets = self._offsets[: self.count + 1]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._held[: offsets[-1]])]
        return pa.Array.from_buffers(pa.large_string(), self.count, buffers)

    def _make_room(self, strings: int, size: int) -> None:
        """Make room for some more strings of ``size`` bytes in all, if all should be new."""
        from dbfs_workers.ids.kernels import strings as kernels

        count, used = self.count + strings, int(self._offsets[self.count])
        _require_codes(count)
        # Pages of arrays that were never written take no memory.
        if used + size > self._held.size:
            self._held = _longer(self._held, used, max(2 * self._held.size, used + size))
        if count >= self._offsets.size:
            self._offsets = _longer(self._offsets, self.count + 1, max(2 * self._offsets.size, count + 1))
        slots = self._table.size
        while 4 * count > 3 * slots:
            slots *= 2
        if slots > self._table.size:
            # Frees the table before the next one is made.
            del self._table
            self._table = np.zeros(slots, np.uint64)
            kernels.place_strings(self._offsets, self._held, _ODD_SEED, self.count, self._table)


class _TupleCodes:
    """The codes of tuples: those of their keys (see ``sort_keys``)."""

    def __init__(self) -> None:
        self._keys = _StringCodes()
        self._distinct = list[Any]()

    @property
    def count(self) -> int:
        return self._keys.count

    def growth(self, ids: Any) -> int:
        # A key has up to 2 bytes for each byte of a tuple.
        return self._keys.growth(ids) + 4 * nbytes(ids) + 8 * len(ids)

    def encode(self, ids: Any) -> NDArray[np.int32]:
        """Return the code of each tuple of an Arrow array of structs."""
        before = self._keys.count
        codes = self._keys.encode(sort_keys(ids))
        # NumPy keeps the last of several values for one index: in reversed order the first occurrence.
        first = np.empty(self._keys.count - before, np.int64)
        rows = np.flatnonzero(codes >= before)[::-1]
        first[codes[rows] - before] = rows
        if first.size or not self._distinct:
            self._distinct.append(take(ids, first))
        return codes

    def distinct(self) -> Any:
        return joined(self._distinct)


def _require_codes(count: int) -> None:
    """Refuse more distinct ids than there are codes."""
    if count > _MOST_CODES:
        raise GraphTooLargeError(
            f"one rank has more than {_MOST_CODES:,} distinct ids to number; more ranks would have fewer each"
        )


def _longer(array: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    """Return an array of ``size`` items that begins with the used items of another one."""
    longer = np.empty(size, array.dtype)
    longer[:used] = array[:used]
    return longer


def divide(ids: Ids, splitters: Sequence[Any]) -> tuple[NDArray[np.int32], list[int]]:
    """Divide ids into the ranges of ``ids.table.ranges_of``.

    Args:
        ids: fewer than 2^31 ids.
        splitters: at least 1 of Python's values, and fewer than 2^16, ascending.

    Returns:
        The indices of the ids range by range, ascending within a range, and for each range the end of its indices.
    """
    # Imported here because the import compiles kernels.
    from dbfs_workers.ids.kernels import integers as kernels

    order, counts = np.empty(len(ids), np.int32), np.zeros(len(splitters) + 1, np.int64)
    if isinstance(ids, np.ndarray):
        ranges = np.empty(ids.size, np.uint16)
        kernels.find_ranges(ids, np.array(splitters, np.int64), ranges, counts)
    else:
        ranges = ranges_of(ids, splitters).astype(np.uint16)
        counts += np.bincount(ranges, minlength=counts.size)
    ends = np.cumsum(counts)
    kernels.place_ranges(ranges, ends - counts, order)
    return order, ends.tolist()


def ascending(ids: Ids) -> NDArray[np.signedinteger]:
    """Return the indices of distinct ids, up to 2^31, in ascending order."""
    from dbfs_workers.ids.kernels import ids as kernels

    if isinstance(ids, np.ndarray):
        return _ascending_integers(ids)
    if len(ids) == 0:
        return np.empty(0, np.int64)
    offsets, data = _bytes(sort_keys(ids))
    depth = kernels.common_prefix(offsets, data)
    keys = np.empty(len(ids), np.uint64)
    kernels.keys_of(offsets, data, depth, keys)
    order = np.argsort(keys)
    kernels.sort_runs(order, keys[order], offsets, data, depth)
    return order


def _ascending_integers(ids: NDArray[np.int64]) -> NDArray[np.int32]:
    """See ``ascending``. The radix sort took 0.3 times as long as NumPy's (1.5 million integers, busy machine)."""
    from dbfs_workers.ids.kernels import integers as kernels

    order = np.arange(ids.size, dtype=np.int32)
    differing = int(np.bitwise_or.reduce(ids ^ ids[0])) if ids.size else 0
    keys, others = ids, (np.empty_like(ids), np.empty_like(order))
    starts = np.empty((1 << _DIGIT_BITS) + 1, np.int64)
    for shift in range(0, differing.bit_length(), _DIGIT_BITS):
        if (differing >> shift) & ((1 << _DIGIT_BITS) - 1):
            kernels.sort_by_digit(keys, order, shift, starts, *others)
            (keys, order), others = others, (np.empty_like(ids) if keys is ids else keys, order)
    return order


def _bytes(strings: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and the bytes of an Arrow array of ``large_string`` or ``large_binary``."""
    _, offsets, data = strings.buffers()
    if len(strings) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    found = np.frombuffer(offsets, np.int64, len(strings) + 1, 8 * strings.offset)
    return found, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
