"""Views of this program that give way: those out of use are dropped, the oldest first, where memory is needed."""

from __future__ import annotations

import weakref
from typing import Final, Protocol

from dbfs.cluster.gang import Gang


class Droppable(Protocol):
    """A view that may be dropped.

    Attributes:
        gang: its workers.
        used: time of its last use, in seconds of ``time.monotonic()``.
    """

    gang: Gang
    used: float

    def _drop(self) -> bool:
        """Free the view's memory until its next use, unless it is in use; return whether it was freed."""


KEPT: Final[weakref.WeakSet[Droppable]] = weakref.WeakSet()
"""The views without a name that this program has made, those that were dropped among them."""


def make_room(gang: Gang) -> bool:
    """Drop the view on one of a gang's workers that was used longest ago; return whether there was one."""
    near = [view for view in KEPT if view.gang.is_of(gang.client) and {*view.gang.addresses} & {*gang.addresses}]
    return any(view._drop() for view in sorted(near, key=lambda view: view.used))
