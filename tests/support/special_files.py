"""What may be in a file's place: pipes, sockets, devices."""

import os
import socket
from collections.abc import Callable
from pathlib import Path


def to_socket(path: Path) -> None:
    """Make a socket. Its name is short, since that of a socket may have 107 bytes only."""
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a socket": to_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}
"""By what messages call it, how to make it at a path where nothing is."""


def put(what: str, path: Path) -> None:
    """Put something special in a file's place."""
    path.unlink(missing_ok=True)
    SPECIAL[what](path)
