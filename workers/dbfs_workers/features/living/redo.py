"""Making a version again of the version before, by the edges that changed in a rank's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dbfs_workers.base.errors import FormatError
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.serving.turns.changes import Redo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dbfs_workers.search.partition.partition import Partition


def redo_of(spec: UpdateSpec, version: int, keys: Any | None, in_keys: Any | None) -> Redo:
    """Return what makes a version again: the update, and the keys of the edges that it changed on this rank."""
    arrays = {"keys": keys, "in_keys": in_keys, "vertices": spec.vertices if spec.vertices.size else None}
    ids = [list(one) if isinstance(one, tuple) else one for one in spec.ids]
    facts = {"kind": spec.kind, "hub_first": spec.hub_first, "count": spec.count, "ids": ids, "n": spec.n}
    return Redo(version, facts, {name: array for name, array in arrays.items() if array is not None})


def made_again(
    partition: Partition,
    facts: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    free_bytes: Callable[[], int],
) -> Partition:
    """Return the version after a partition's; ``facts`` and ``arrays`` are those of its ``Redo``.

    Raises:
        FormatError: they do not fit the partition. Others as of ``versions.updated``.
    """
    from dbfs_workers.features.living.versions import updated

    try:
        ids = tuple(tuple(one) if isinstance(one, list) else one for one in facts["ids"])
        spec = UpdateSpec(facts["kind"], facts["hub_first"], facts["count"], ids=ids, n=facts["n"])
        if "vertices" in arrays:
            spec = UpdateSpec(spec.kind, spec.hub_first, spec.count, arrays["vertices"], ids=ids, n=spec.n)
        keys, in_keys = (_within(partition, arrays.get(name)) for name in ("keys", "in_keys"))
        made = updated(partition, spec, keys, in_keys, free_bytes)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"version {partition.version + 1} of rank {partition.rank} is no change of it") from error
    return made.partition


def _within(partition: Partition, keys: NDArray[Any] | None) -> NDArray[np.uint64] | None:
    """Return keys; raise ``ValueError`` unless they are edges of the rank's rows: a kernel reads them."""
    import numpy as np

    if keys is None or not keys.size:
        return keys
    stripe = partition.stripe
    columns = keys & np.uint64(0xFFFFFFFF)
    if int(keys.max()) >> 32 >= stripe.n_local or int(columns.max()) >= stripe.p * stripe.n_local:
        raise ValueError("edges of no row")
    return keys
