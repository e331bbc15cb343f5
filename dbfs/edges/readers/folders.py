"""Readers of folders that features add: each opens the folders that it knows."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dbfs.edges.edge_list import EdgeList
    from dbfs.edges.readers.options import ReadOptions


class FolderReader(ABC):
    """Opens folders that are more than files of edges.

    Attributes:
        known: the readers that ``from_file`` asks before it looks for files; the package ``dbfs`` sets them, since only
            the assembly knows all features.
    """

    known: ClassVar[Sequence[FolderReader]] = ()

    @abstractmethod
    def open(self, path: str | os.PathLike[str], options: ReadOptions) -> EdgeList | None:
        """Return the edges of a folder; None if the path is none that this reader knows. Errors as of ``from_file``."""
