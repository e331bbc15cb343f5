"""What a traversal found on one rank, and the Dask keys that it is published under."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.stripe import NO_VERTEX, Stripe

UNREACHED: Final = -1


@dataclass(frozen=True)
class RankLabels:
    """What a traversal found on one rank.

    Attributes:
        distances: int32[n_local], -1 unreached.
        predecessors: uint32[n_local] internal ids, ``NO_VERTEX`` unreached; None where not wanted.
    """

    distances: NDArray[np.int32]
    predecessors: NDArray[np.uint32] | None

    def of_rows(self, stripe: Stripe, rank: int) -> tuple[NDArray[np.int32], NDArray[np.int64] | None]:
        """As they are handed out: without padding, predecessors int64 as vertices, -1 unreached.

        In a graph ordered by degree they are positions.
        """
        owned = stripe.owned(rank)
        if self.predecessors is None:
            return self.distances[:owned], None
        ids = self.predecessors[:owned].astype(np.int64)
        vertices = stripe.vertex(ids)
        vertices[ids == NO_VERTEX] = UNREACHED
        return self.distances[:owned], vertices


def label_key(label: str, run_id: str, index: int, rank: int) -> tuple[str, int, int]:
    """Dask key of one rank's labels: of the traversal ``index`` of a run."""
    return (f"{label}-{run_id}", index, rank)
