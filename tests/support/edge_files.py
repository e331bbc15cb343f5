"""Edge files for the tests of readers and writers: write a file, read all pieces of an edge list."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dbfs.edges.edge_list import EdgeList

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lambda text: lzma.compress(text, preset=0),
    ".bz2": bz2.compress,
}


def write(folder: Path, name: str, text: str | bytes) -> Path:
    """Write a file, compressed if its suffix names a compression; return its path."""
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(PACKERS.get(path.suffix, bytes)(data))
    return path


def repeated(path: Path, start: bytes, unit: bytes, size: int) -> Path:
    """Write ``start`` and about ``size`` bytes of a repeated unit, quickly: compressed streams may be joined."""
    pack = PACKERS.get(path.suffix, bytes)
    block = unit * max(min(size, 1 << 24) // len(unit), 1)
    path.write_bytes((pack(start) if start else b"") + pack(block) * (size // len(block)))
    return path


def read_all(edges: EdgeList, piece_edges: int = 1 << 40) -> list[tuple[int, int]]:
    """Return the edges of all pieces, in order."""
    parts = [piece.read() for piece in edges.cut(piece_edges)]
    for source, target in parts:
        assert source.dtype == target.dtype == np.int64
        assert source.shape == target.shape
    return [pair for source, target in parts for pair in zip(source.tolist(), target.tolist(), strict=True)]
