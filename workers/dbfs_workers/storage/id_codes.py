"""Distinct ids: ids as codes into their distinct ids, and the ascending order of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.id_table import sort_keys, take

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids


def encode(parts: Sequence[Ids]) -> tuple[NDArray[np.int32], Ids]:
    """Return a code for each id of all parts (at least one part), and the distinct ids, which the codes index.

    A hash table takes about 40 bytes for each distinct id meanwhile. The distinct ids are in the order in which they
    occur first.
    """
    import pyarrow as pa

    if isinstance(parts[0], np.ndarray):
        encoded = pa.array(np.concatenate(parts)).dictionary_encode()
        return encoded.indices.to_numpy(), encoded.dictionary.to_numpy()
    chunks = pa.chunked_array([sort_keys(part) for part in parts]).dictionary_encode().chunks
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]) if chunks else np.empty(0, np.int32)
    if not pa.types.is_struct(parts[0].type):
        return codes, chunks[0].dictionary if chunks else parts[0][:0]
    # NumPy keeps the last of several values for one index: in reversed order the first occurrence.
    first = np.empty(len(chunks[0].dictionary) if chunks else 0, np.int64)
    first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
    return codes, take(pa.concat_arrays(parts), first)


def ascending(ids: Ids) -> NDArray[np.int64]:
    """Return the indices of ids in ascending order."""
    if isinstance(ids, np.ndarray):
        return np.argsort(ids)
    import pyarrow.compute as pc

    return np.asarray(pc.sort_indices(sort_keys(ids)).to_numpy(), np.int64)
