"""The memory that this process may still take, before it makes a large array."""

from __future__ import annotations

import psutil

from dbfs.base.units import format_bytes
from dbfs.errors import GraphTooLargeError


def require_room(nbytes: int, what: str, instead: str) -> None:
    """Raise ``GraphTooLargeError`` if fewer bytes are free on this machine.

    Args:
        nbytes: bytes wanted.
        what: what takes these bytes, with the verb.
        instead: what takes fewer.
    """
    free = psutil.virtual_memory().available
    if nbytes > free:
        raise GraphTooLargeError(
            f"{what} about {nbytes} bytes ({format_bytes(nbytes)}) in this process, and {free} bytes "
            f"({format_bytes(free)}) are free; {instead}"
        )
