"""The Kronecker generator against the Graph500 reference's checksums and its specification in Python integers."""

import hashlib
import json
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dbfs.edges.generate import kronecker
from dbfs.edges.generate.kronecker import KroneckerPiece
from dbfs_workers.building.pieces import Edges

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "graph500"

# SHA-256 of all edges as little-endian int64 pairs, edge factor 16, seeds 2 and 3, from the reference code. Scale 14 is
# large enough to hold values that the generator draws again.
CHECKSUMS = {
    10: "959f7be6382c69afe8fbc4f78b0d1d86569a38ab429e02d9c26b968ede6255ec",
    14: "3625670bedd5a56dce03247f8198dbf33105e186ae0c0f605d4353f55eacfa3c",
}

# The same of the reference code's weights (built with -DSSSP), as little-endian float32.
WEIGHTS = {
    10: "199971e6332f459fe9980a9824b2961e9ec6c724118e24549a1c3880d28616b4",
    14: "24db2e4fe26628a36d18ad9998ad98c4cdc1193e7c797349196be32c52278f5f",
}

PRIME = 2**31 - 1
REDRAWN_BELOW = PRIME % 10000


def read_all(scale: int, piece_edges: int) -> Edges:
    sources, targets = zip(*(piece.read() for piece in kronecker(scale).cut(piece_edges)), strict=True)
    return np.concatenate(sources), np.concatenate(targets)


def checksum(edges: Edges) -> str:
    return hashlib.sha256(np.stack(edges, axis=1).astype("<i8").tobytes()).hexdigest()


class Oracle:
    """The specification, one edge at a time, in Python integers."""

    def __init__(self, scale: int, seed1: int, seed2: int) -> None:
        self.scale = scale
        low = 2**30 - 1
        words = [seed1 & low, (seed1 >> 30) & low, seed2 & low, (seed2 >> 30) & low, (seed1 >> 60) + (seed2 >> 60) * 16]
        self.seed = np.array([word + 1 for word in words], object)
        state = self.skipped(50 * 2**128 + 7 * 2**64)
        draws = [self.draw(state) for _ in range(4)]
        self.value0 = draws[0] * 0xFFFFFFFF + draws[1]
        self.value1 = draws[2] * 0xFFFFFFFF + draws[3]
        self.redraws = 0

    @staticmethod
    @cache
    def doubled_step(doublings: int) -> np.ndarray:
        if doublings == 0:
            step = np.zeros((5, 5), object)
            step[0, 0], step[0, 4] = 107374182, 104480
            step[range(1, 5), range(4)] = 1
            return step
        half = Oracle.doubled_step(doublings - 1)
        return half.dot(half) % PRIME

    def skipped(self, steps: int) -> list[int]:
        state = self.seed
        for bit in range(steps.bit_length()):
            if steps >> bit & 1:
                state = self.doubled_step(bit).dot(state) % PRIME
        return list(state)

    @staticmethod
    def draw(state: list[int]) -> int:
        state.insert(0, (107374182 * state[0] + 104480 * state.pop()) % PRIME)
        return state[0]

    def scramble(self, vertex: int) -> int:
        for change in (
            lambda v: (v + self.value0 + self.value1) * (self.value0 | 0x4519840211493211),
            lambda v: v * (self.value1 | 0x3050852102C843A5),
        ):
            vertex = int(f"{change(vertex) % 2**64:064b}"[::-1], 2) >> (64 - self.scale)
        return vertex

    def edge(self, i: int) -> tuple[int, int]:
        state = self.skipped(i * 2**64)
        source = target = 0
        for _ in range(self.scale):
            while (value := self.draw(state)) < REDRAWN_BELOW:
                self.redraws += 1
            residue = value % 10000
            if residue < 1900:
                bits = (0, 1)
            elif residue < 3800:
                bits = (0, 1) if source == target else (1, 0)
            else:
                bits = (0, 0) if residue < 9500 else (1, 1)
            source, target = 2 * source + bits[0], 2 * target + bits[1]
        return self.scramble(source), self.scramble(target)


@pytest.mark.parametrize("scale", CHECKSUMS)
@pytest.mark.parametrize("piece_edges", [2**40, 7001])
def test_reference_checksum(scale: int, piece_edges: int) -> None:
    assert checksum(read_all(scale, piece_edges)) == CHECKSUMS[scale]


@pytest.mark.parametrize("scale", WEIGHTS)
@pytest.mark.parametrize("piece_edges", [2**40, 7001])
def test_reference_weights(scale: int, piece_edges: int) -> None:
    kept = kronecker(scale).keeping(["weight=graph500"])
    assert kept.attributes is not None
    pieces = kept.attributes.cut(piece_edges)
    drawn = np.concatenate([pickle.loads(pickle.dumps(piece)).attributes()["weight"].to_numpy() for piece in pieces])
    assert drawn.dtype == np.float32
    assert hashlib.sha256(drawn.astype("<f4").tobytes()).hexdigest() == WEIGHTS[scale]


@pytest.mark.skipif(not DATA.exists(), reason="the reference's edges are not here")
def test_reference_edges_of_scale_10() -> None:
    with np.load(DATA / "edges-scale10.npz") as arrays:
        np.testing.assert_array_equal(np.stack(read_all(10, 1000), axis=1), arrays["edges"])


@pytest.mark.skipif(not DATA.exists(), reason="the reference's checksums are not here")
def test_reference_checksum_of_scale_18() -> None:
    expected = json.loads((DATA / "edges.json").read_text())["18"]["sha256_of_little_endian_int64_pairs"]
    assert checksum(read_all(18, 2**20)) == expected


@pytest.mark.parametrize(("seed1", "seed2"), [(2, 3), (0, 0), (2**64 - 1, 0xFEDCBA9876543210)])
@pytest.mark.parametrize("scale", [1, 2, 5, 20, 32, 40])
def test_edges_are_those_of_the_specification(scale: int, seed1: int, seed2: int) -> None:
    oracle = Oracle(scale, seed1, seed2)
    last = 16 * 2**scale
    for start in (0, last // 3, last - 3):
        sources, targets = KroneckerPiece(start, start + 3, scale, seed1, seed2).read()
        assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == [
            oracle.edge(i) for i in range(start, start + 3)
        ]


def test_an_edge_that_draws_a_value_twice() -> None:
    """Edge 49556 of scale 20 draws a level's value twice, and its neighbours in the block do not."""
    oracle = Oracle(20, 2, 3)
    sources, targets = KroneckerPiece(49550, 49560, 20, 2, 3).read()
    assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == [oracle.edge(i) for i in range(49550, 49560)]
    assert oracle.redraws == 1


@pytest.mark.parametrize("scale", [7, 32, 40])
def test_pieces_of_any_length(scale: int) -> None:
    """Lengths around the kernel's block, at both ends of the graph."""
    last = 16 * 2**scale
    for first in (0, last - 300):
        whole = KroneckerPiece(first, first + 300, scale, 5, 6).read()
        for start, stop in [(0, 0), (0, 1), (1, 128), (127, 129), (128, 256), (3, 300), (299, 300)]:
            part = KroneckerPiece(first + start, first + stop, scale, 5, 6).read()
            for ends, all_ends in zip(part, whole, strict=True):
                assert ends.dtype == np.int64
                np.testing.assert_array_equal(ends, all_ends[start:stop])


def test_seeds_change_the_edges() -> None:
    first = read_piece(2, 3)
    for seeds in [(3, 2), (2, 4), (2 + 2**60, 3), (2, 3 + 2**30)]:
        assert not np.array_equal(first, read_piece(*seeds))


def read_piece(seed1: int, seed2: int) -> np.ndarray:
    return np.stack(KroneckerPiece(100, 300, 12, seed1, seed2).read())


def test_counts_known_beforehand() -> None:
    edges = kronecker(12, edgefactor=5)
    assert (edges.n, edges.m, edges.directed, edges.mirrored, edges.symmetrise) == (4096, 20480, False, False, True)


@pytest.mark.gpu
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 8193), (4099, 9000), (3, 3), (2**36 + 17, 2**36 + 8300)])
@pytest.mark.parametrize(("scale", "seed1", "seed2"), [(1, 2, 3), (5, 2**64 - 1, 12345), (24, 2, 3), (40, 7, 9)])
def test_a_gpu_draws_the_same_edges(scale: int, seed1: int, seed2: int, start: int, stop: int) -> None:
    cupy = pytest.importorskip("cupy")
    piece = KroneckerPiece(start, stop, scale, seed1, seed2)
    for drawn, expected in zip(piece.read_on(cupy), piece.read(), strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(drawn), expected)
