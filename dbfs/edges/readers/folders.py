"""Readers of folders that features add: each opens the folders that it knows."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dbfs.edges.edge_list import EdgeList
    from dbfs.edges.readers.options import ReadOptions


class FolderReader(ABC):
    """Opens folders that are more than files of edges."""

    @abstractmethod
    def open(self, path: str | os.PathLike[str], options: ReadOptions) -> EdgeList | None:
        """Return the edges of a folder; None if the path is none that this reader knows. Errors as of ``from_file``."""


_readers: Final[list[FolderReader]] = []


def add_reader(reader: FolderReader) -> None:
    """Add a reader, which ``from_file`` asks before it looks for files."""
    _readers.append(reader)


def open_folder(path: str | os.PathLike[str], options: ReadOptions) -> EdgeList | None:
    """Return the edges of a folder that a reader knows, else None; errors as of ``from_file``."""
    return next((edges for reader in _readers if (edges := reader.open(path, options)) is not None), None)
