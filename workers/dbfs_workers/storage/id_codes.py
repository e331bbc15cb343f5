"""Distinct ids: ids as codes into their distinct ids, and the ascending order of these."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.id_table import joined, nbytes, sort_keys, take

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids

# No caller can choose ids whose hashes collide.
_SEED = np.uint64(secrets.randbits(64))


def encoding_bytes(parts: Sequence[Ids]) -> int:
    """Return the bytes that ``encode`` takes at most, if all ids are distinct: codes, the hash table, the distinct ids.

    Of integers the parts as one array and the copied result as well.
    """
    return 44 * sum(map(len, parts)) + sum(map(nbytes, parts))


def encode(parts: Sequence[Ids]) -> tuple[NDArray[np.int32], Ids]:
    """Return a code for each id of all parts (at least one part), and the distinct ids, which the codes index.

    The distinct ids are in the order in which they occur first. A hash table takes about 40 bytes for each id.
    """
    if isinstance(parts[0], np.ndarray):
        # Imported here because the import compiles kernels.
        from dbfs_workers.storage import id_kernels as kernels

        integers = np.concatenate(parts)
        codes, distinct = np.empty(integers.size, np.int32), np.empty(integers.size, np.int64)
        table = np.zeros(1 << (2 * integers.size).bit_length(), np.int32)
        count = kernels.encode_integers(integers, _SEED, table, codes, distinct)
        return codes, distinct[:count].copy()
    import pyarrow as pa

    chunks = pa.chunked_array([sort_keys(part) for part in parts]).dictionary_encode().chunks
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]) if chunks else np.empty(0, np.int32)
    if not pa.types.is_struct(parts[0].type):
        return codes, chunks[0].dictionary if chunks else parts[0][:0]
    # NumPy keeps the last of several values for one index: in reversed order the first occurrence.
    first = np.empty(len(chunks[0].dictionary) if chunks else 0, np.int64)
    first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
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
