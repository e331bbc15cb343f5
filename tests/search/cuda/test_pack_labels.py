"""Labels packed on a GPU in one pass: the kernel on this CPU, against the CPU's packing, for right and wrong labels."""

import ctypes
from typing import Any

import numpy as np
import pytest

from dbfs_workers.features.validation import on_gpu as validation
from dbfs_workers.features.validation.kernels.sources import VALIDATION
from dbfs_workers.features.validation.validation import pack_labels
from dbfs_workers.search.cuda.source import Source
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from tests.support import standin
from tests.support.cuda_on_cpu.compiler import emulated, needs_compiler

pytestmark = needs_compiler

C_TYPES = {np.uint64: ctypes.c_uint64, np.int64: ctypes.c_int64, np.uint32: ctypes.c_uint32}
N = 203


@pytest.fixture(scope="module")
def kernels() -> ctypes.PyDLL:
    library = emulated("pack_labels")
    library.pack_labels.restype = ctypes.c_char_p
    return library


@pytest.fixture
def gpu(kernels: ctypes.PyDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    standin.install(monkeypatch, mapped=True)

    def launch(source: Source, name: str, threads: int, arguments: tuple[Any, ...]) -> None:
        assert (source, name) == (VALIDATION, "dbfs_pack_labels")
        given = [each.ctypes if isinstance(each, np.ndarray) else C_TYPES[type(each)](each) for each in arguments]
        assert not kernels.pack_labels(2, 64, ctypes.c_ulonglong(1), *given)

    monkeypatch.setattr(validation, "launch", launch)


# What becomes of row 9, or of the source's row 3: a distance, and a predecessor's internal id; None stays.
SELF, PADDING = -1, -2
CHANGES: dict[str, tuple[int, int | None, int | None]] = {
    "right": (9, None, None),
    "below -1": (9, -2, None),
    "past the bound": (9, 41, None),
    "no predecessor": (9, None, NO_VERTEX),
    "no distance": (9, -1, None),
    "another source": (9, 0, None),
    "another root": (9, 0, SELF),
    "a source apart": (3, 1, None),
    "a source with a parent": (3, None, 4),
    "a predecessor in the padding": (9, None, PADDING),
    "a predecessor past all ranks": (9, None, NO_VERTEX - 1),
}


@pytest.mark.parametrize("predecessors", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", CHANGES)
def test_words_and_verdicts_are_those_of_the_cpu(gpu: None, name: str, ranks: int, predecessors: bool) -> None:
    stripe = Stripe(N, ranks)
    rank = ranks - 1
    sources = tuple(int(3 * stripe.p + rank) for _ in range(2))
    rng = np.random.default_rng(5)
    distances = rng.integers(-1, 40, stripe.n_local, dtype=np.int32)
    distances[distances == 0] = 7
    distances[9] = 5
    ids = stripe.internal(rng.integers(0, N, stripe.n_local)).astype(np.uint32)
    ids[distances < 0] = NO_VERTEX
    distances[3], ids[3] = 0, rank * stripe.n_local + 3
    row, distance, predecessor = CHANGES[name]
    if distance is not None:
        distances[row] = distance
    if predecessor is not None:
        named = {SELF: rank * stripe.n_local + row, PADDING: stripe.n_local - 1}
        ids[row] = named.get(predecessor, predecessor)
    labels = RankLabels(distances, ids if predecessors else None)
    expected = pack_labels(stripe, rank, *labels.of_rows(stripe, rank), sources, 40)
    words = validation.pack(stripe, rank, labels, sources, 40)
    assert (words is None) == bool(expected.violations)
    if words is not None:
        np.testing.assert_array_equal(words, expected.words)
