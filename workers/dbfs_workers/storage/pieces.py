"""Pieces: parts of an edge list, small enough for one task. A worker reads or computes a piece's edges."""

from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]


class Piece(Protocol):
    """A part of an edge list, small enough for one task. Picklable; ``read`` runs on a worker."""

    def read(self) -> Edges:
        """The piece's sources and targets: two int64 arrays of one length."""
        ...


class GeneratedPiece(ABC):
    """A ``Piece`` computed from its parameters, on the CPU or on a GPU; the same edges in the same order on both."""

    @abstractmethod
    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """The sources and targets as int64 arrays of ``xp``: NumPy, or CuPy on its current device and stream."""

    def read(self) -> Edges:
        """The sources and targets as NumPy arrays."""
        return self.read_on(np)
