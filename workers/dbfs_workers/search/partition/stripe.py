"""The stripe: the rank that owns a vertex, and the vertex's row there (Merrill 2012, section 6).

Vertex ``v`` belongs to rank ``v % p`` and is row ``v // p`` there. Its internal id is ``owner * n_local + row``, so
that finding the owner takes one division, and each rank's part of a bitmap is one contiguous slice of whole words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError

WORD_BITS = 32
# The largest uint32 is no internal id: it means "no vertex" in predecessor arrays.
MAX_INTERNAL_IDS = 2**32 - 1
NO_VERTEX = np.uint32(0xFFFFFFFF)

Ids = TypeVar("Ids", int, NDArray[np.int64])


@dataclass(frozen=True)
class Stripe:
    """The placement of ``n`` vertices on ``p`` ranks.

    The conversions take one id or an array of ids and do not check them. Callers check ids where they enter the system.

    Attributes:
        n: vertices of the graph.
        room: vertices that may be added later without a change of any internal id; rows are kept for them.

    Raises:
        ValueError: ``p`` is less than 1, or ``n`` or ``room`` is negative.
        GraphTooLargeError: the internal ids do not fit 32 bits.
    """

    n: int
    p: int
    room: int = 0

    def __post_init__(self) -> None:
        if self.p < 1 or self.n < 0 or self.room < 0:
            raise ValueError(f"a stripe needs p >= 1, n >= 0 and room >= 0, not {self.p}, {self.n} and {self.room}")
        if self.p * self.n_local > MAX_INTERNAL_IDS:
            raise GraphTooLargeError(
                f"{self.n} vertices on {self.p} ranks need {self.p * self.n_local} internal ids; "
                f"32 bits hold {MAX_INTERNAL_IDS}"
            )

    @property
    def n_local(self) -> int:
        """Rows per rank: ceil((n + room) / p) rounded up to whole words, at least one. Rows past n are padding."""
        rows = -(-(self.n + self.room) // self.p)
        return max(WORD_BITS, -(-rows // WORD_BITS) * WORD_BITS)

    @property
    def words_local(self) -> int:
        """Words of one rank's slice of a bitmap over all internal ids."""
        return self.n_local // WORD_BITS

    @property
    def words(self) -> int:
        """Words of a bitmap over all internal ids."""
        return self.words_local * self.p

    def owned(self, rank: int) -> int:
        """Return the number of vertices that a rank owns: its rows without padding."""
        return max(0, -(-(self.n - rank) // self.p))

    def grown(self, count: int) -> "Stripe":
        """Return the stripe with ``count`` more vertices, which take their rows from the room."""
        return Stripe(self.n + count, self.p, self.room - count)

    def owner(self, vertex: Ids) -> Ids:
        """Return the rank of a vertex."""
        return vertex % self.p

    def row(self, vertex: Ids) -> Ids:
        """Return the local id of a vertex on its owner."""
        return vertex // self.p

    def internal(self, vertex: Ids) -> Ids:
        """Return the internal id of a vertex."""
        return (vertex % self.p) * self.n_local + vertex // self.p

    def vertex(self, internal: Ids) -> Ids:
        """Return the vertex id of an internal id."""
        # A product instead of a remainder: on arrays, NumPy takes four times as long for a remainder as for a quotient.
        owner = internal // self.n_local
        return (internal - owner * self.n_local) * self.p + owner


def own_rows(stripe: Stripe, rank: int, vertices: Sequence[int]) -> NDArray[np.uint32]:
    """Return the local ids of those vertices that a rank owns: uint32, ascending and each once."""
    if len(vertices) == 1:
        # Most traversals have one source. The general way takes 10 us.
        vertex = int(vertices[0])
        return np.array([stripe.row(vertex)] if stripe.owner(vertex) == rank else [], np.uint32)
    unique = np.unique(np.asarray(vertices, np.int64))
    rows: NDArray[np.int64] = stripe.row(unique[stripe.owner(unique) == rank])
    return rows.astype(np.uint32)
