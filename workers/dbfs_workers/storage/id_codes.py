"""Distinct ids: ids as codes into their distinct ids, and the ascending order of these."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import GraphTooLargeError
from dbfs_workers.storage.id_table import joined, nbytes, sort_keys, take

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids

# No caller can choose ids whose hashes collide.
_SEED = np.uint64(secrets.randbits(64))

# Slots of the smallest hash table: a power of 2.
_LEAST_SLOTS = 1 << 10

# Most slots: half of the slots may be taken, and codes are int32.
_MOST_SLOTS = 1 << 32


def encode(
    parts: Iterable[Ids], require: Callable[[int], None] = lambda _: None
) -> tuple[list[NDArray[np.int32]], Ids]:
    """Return the codes of each part (at least one part), and the distinct ids of all parts, which the codes index.

    The distinct ids are in the order in which they occur first. Parts of integers are taken one by one, and not kept: a
    distinct integer takes 8 bytes, and 8 to 22 bytes in a hash table. Other parts are kept until the end, and Arrow's
    hash table takes about 40 bytes for each distinct id.

    Args:
        parts: the ids.
        require: called with the bytes that the next step takes at most.

    Raises:
        GraphTooLargeError: the parts hold more than 2^31 distinct integers.
    """
    integers, columns, codes = _IntegerCodes(), list[Any](), list[NDArray[np.int32]]()
    for part in parts:
        if isinstance(part, np.ndarray):
            # The codes, and copies of the hash table and the distinct integers that have grown.
            require(30 * integers.count + 44 * part.size)
            codes.append(integers.encode(part))
        else:
            columns.append(part)
    if not columns:
        return codes, integers.distinct()
    require(44 * sum(map(len, columns)) + sum(map(nbytes, columns)))
    return _encode_columns(columns)


class _IntegerCodes:
    """The codes of integers: a hash table that grows with the number of distinct integers.

    Attributes:
        count: number of distinct integers so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._allocate(_LEAST_SLOTS)

    def encode(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the code of each integer."""
        # Imported here because the import compiles kernels.
        from dbfs_workers.storage import id_kernels as kernels

        codes, start = np.empty(ids.size, np.int32), 0
        while start < ids.size:
            # The table is never more than half full. With fewer free slots each call would take few integers.
            free = self._distinct.size - self.count
            if free < min(ids.size - start, self._distinct.size // 4):
                self._grow()
                continue
            part = slice(start, start + free)
            self.count = kernels.encode_integers(ids[part], _SEED, self._table, codes[part], self._distinct, self.count)
            start += free
        return codes

    def distinct(self) -> NDArray[np.int64]:
        """Return the distinct integers, by code."""
        return self._distinct[: self.count].copy()

    def _allocate(self, slots: int) -> None:
        self._table, self._distinct = np.zeros(slots, np.int32), np.empty(slots // 2, np.int64)

    def _grow(self) -> None:
        from dbfs_workers.storage import id_kernels as kernels

        held = self.distinct()
        # Frees the table before the next one is made.
        slots = 2 * self._table.size
        if slots > _MOST_SLOTS:
            raise GraphTooLargeError(
                f"one rank has more than {_MOST_SLOTS // 2:,} distinct ids to number; more ranks would have fewer each"
            )
        del self._table, self._distinct
        self._allocate(slots)
        self._distinct[: held.size] = held
        kernels.place_codes(held, _SEED, self._table)


def _encode_columns(parts: list[Any]) -> tuple[list[NDArray[np.int32]], Any]:
    """Return the codes of each Arrow array, and the distinct ids; see ``encode``."""
    import pyarrow as pa

    # Arrow leaves empty chunks out.
    chunks = pa.chunked_array([sort_keys(part) for part in parts]).dictionary_encode().chunks
    joint = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]) if chunks else np.empty(0, np.int32)
    ends = accumulate(map(len, parts), initial=0)
    # Copied: views would keep the codes of all parts.
    codes = [joint[start:end].copy() for start, end in pairwise(ends)]
    if not pa.types.is_struct(parts[0].type):
        return codes, chunks[0].dictionary if chunks else parts[0][:0]
    # NumPy keeps the last of several values for one index: in reversed order the first occurrence.
    first = np.empty(len(chunks[0].dictionary) if chunks else 0, np.int64)
    first[joint[::-1]] = np.arange(joint.size - 1, -1, -1)
    return codes, take(joined(parts), first)


def ascending(ids: Ids) -> NDArray[np.int64]:
    """Return the indices of distinct ids in ascending order."""
    from dbfs_workers.storage import id_kernels as kernels

    if isinstance(ids, np.ndarray):
        return np.argsort(ids)
    if len(ids) == 0:
        return np.empty(0, np.int64)
    offsets, data = _bytes(sort_keys(ids))
    depth = kernels.common_prefix(offsets, data)
    keys = np.empty(len(ids), np.uint64)
    kernels.keys_of(offsets, data, depth, keys)
    order = np.argsort(keys)
    kernels.sort_runs(order, keys[order], offsets, data, depth)
    return order


def _bytes(strings: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and the bytes of an Arrow array of ``large_string`` or ``large_binary``."""
    _, offsets, data = strings.buffers()
    if len(strings) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    found = np.frombuffer(offsets, np.int64, len(strings) + 1, 8 * strings.offset)
    return found, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
