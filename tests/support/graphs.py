"""Small graphs with properties that break programs, as (n, src, dst): int64 arrays of the edges' ends."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[int, NDArray[np.int64], NDArray[np.int64]]


def _arrays(n: int, edges: list[tuple[int, int]]) -> Arrays:
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    return n, src, dst


def random(n: int, m: int, seed: int) -> Arrays:
    """Uniform random edges, among them self-loops and duplicates; some vertices stay isolated."""
    generator = np.random.default_rng(seed)
    return n, generator.integers(0, n, m), generator.integers(0, n, m)


def hub(n: int) -> Arrays:
    """A vertex with an edge to every other vertex, and a second edge to every third."""
    others = np.concatenate([np.arange(1, n), np.arange(1, n, 3)])
    return n, np.zeros(others.size, np.int64), others


def comet(tail: int, leaves: int) -> tuple[Arrays, int]:
    """A path of ``tail`` edges from a source to a hub, which has ``leaves`` more neighbours; and the source."""
    n = tail + 1 + leaves
    path, hub = np.arange(tail), np.full(leaves, tail)
    order = np.random.default_rng(7).permutation(n)
    src, dst = order[np.concatenate([path, hub])], order[np.concatenate([path + 1, np.arange(tail + 1, n)])]
    return (n, src, dst), int(order[0])


def circulant(n: int, steps: int) -> Arrays:
    """Vertices with 2 * steps neighbours each."""
    chosen = np.random.default_rng(5).choice(np.arange(1, n // 2), steps, replace=False)
    return n, np.repeat(np.arange(n), steps), (np.arange(n)[:, None] + chosen).reshape(-1) % n


GRAPHS: dict[str, Callable[[], Arrays]] = {
    "one vertex": lambda: _arrays(1, []),
    "one vertex, self-loop": lambda: _arrays(1, [(0, 0)]),
    "two vertices, no edge": lambda: _arrays(2, []),
    "fewer vertices than ranks": lambda: _arrays(3, [(0, 2), (2, 1)]),
    "path": lambda: _arrays(70, [(v, v + 1) for v in range(69)]),
    "cycle": lambda: _arrays(40, [(v, (v + 1) % 40) for v in range(40)]),
    "self-loops and duplicates": lambda: _arrays(6, [(0, 0), (0, 1), (0, 1), (1, 0), (1, 1), (1, 2), (4, 4), (2, 3)]),
    "isolated vertices": lambda: _arrays(100, [(10, 90), (90, 50)]),
    "hub": lambda: hub(300),
    "sparse random": lambda: random(500, 600, 1),
    "dense random": lambda: random(120, 4000, 2),
    "two components": lambda: _arrays(64, [(v, v + 1) for v in range(31)] + [(v, v + 1) for v in range(32, 63)]),
}
