"""Results of tasks that stay in memory when Dask writes the others to a disk.

Dask spills a worker's results, the longest unused first, once the worker's memory fills. A result that can't be pickled
would end that at once: all others would stay in memory, and the nanny would end the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import distributed


class Unspilled:
    """Base class of a task's result that other tasks of its worker change. Dask's file of it holds only its key."""

    def __init__(self) -> None:
        try:
            self._key: Any = distributed.get_worker().get_current_task()
        except ValueError:
            # Outside a task: no Dask key, and nothing that would spill the object.
            self._key = None

    def __reduce__(self) -> tuple[Callable[..., Unspilled], tuple[Any]]:
        if self._key is None:
            raise TypeError(f"{type(self).__name__} made outside a task can't be pickled")
        _spilled[self._key] = self
        return _find, (self._key,)


# By Dask key: the objects that Dask believes to be on the disk.
_spilled: dict[Any, Unspilled] = {}


def forget(keys: Iterable[Any]) -> None:
    """Free the objects of some Dask keys, which Dask has dropped."""
    for key in keys:
        _spilled.pop(key, None)


def _find(key: Any) -> Unspilled:
    return _spilled[key]
