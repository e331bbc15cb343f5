"""The message by which a client asks a rank for the edges of a subgraph. ``reads`` beside it answers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.serving.messages import WorkerMessage


@dataclass(frozen=True)
class SelectEdges(WorkerMessage[NDArray[np.uint32]]):
    """Return the edges of the rank's rows between chosen vertices; see ``reads.edges_between``.

    Attributes:
        partition: Dask key of the rank's partition.
        chosen: internal ids of the vertices, ascending, each once.
        index: the index of each of them in the caller's list.

    Errors as for ``FindVertices``.
    """

    partition: Hashable
    chosen: NDArray[np.uint32]
    index: NDArray[np.uint32]
