"""Uniform random graphs: G(n, M) with replacement, from a counter-based random generator.

Edge i takes the numbers 2i and 2i + 1 of the Philox4x64-10 sequence (Salmon et al., "Parallel Random Numbers: As Easy
as 1, 2, 3", SC 2011) whose key is the seed. So any range of edges is generated without the edges before it.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.counter import below, random_raw
from dbfs.edges.generate.ranges import MAX_EDGES, MAX_SEED, MAX_VERTICES, GeneratedEdges, RangePiece, integer
from dbfs.errors import InvalidOptionError

# One Philox counter gives four 64-bit numbers.
_EDGES_A_COUNTER = 2


@dataclass(frozen=True)
class UniformPiece(RangePiece):
    """The edges [start, stop) of a uniform random graph."""

    n: int
    seed: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        counter, skip = divmod(self.start, _EDGES_A_COUNTER)
        count = 2 * (skip + self.stop - self.start)
        # Raw numbers of the bit generator: NumPy keeps them, unlike its distributions, the same in all versions.
        raw = (
            np.random.Philox(key=self.seed, counter=counter).random_raw(count)
            if xp is np
            else random_raw(xp, self.seed, counter, count)
        )
        pairs = below(xp, raw, self.n).reshape(-1, 2)[skip:]
        return xp.ascontiguousarray(pairs[:, 0]), xp.ascontiguousarray(pairs[:, 1])


@public
def uniform(n: int, m: int, seed: int = 1, directed: bool = False) -> EdgeList:
    """Return m edges among n vertices, both ends independent and uniform. Self-loops and duplicates occur.

    Raises:
        InvalidOptionError: a parameter is not an integer in its range (n 0..2^40, m 0..2^60, a 64-bit seed), or n = 0
            while m > 0.
        InvalidOptionTypeError: directed is not a bool.
    """
    n = integer("uniform", "n", n, 0, MAX_VERTICES)
    m = integer("uniform", "m", m, 0, MAX_EDGES)
    seed = integer("uniform", "seed", seed, 0, MAX_SEED)
    directed = bool(directed)
    if m > 0 and n == 0:
        raise InvalidOptionError(f"uniform: n must be in 1..{MAX_VERTICES} if m > 0, not 0")
    name = f"uniform:n={n},m={m},seed={seed},directed={str(directed).lower()}"
    return GeneratedEdges(name, n, m, directed, whole=UniformPiece(0, m, n, seed))
