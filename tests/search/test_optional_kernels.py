"""Levels while the kernels for many levels are being compiled: directed by the host, on some ranks or on all."""

import itertools
from collections.abc import Iterator

import distributed
import numpy as np
import pytest

import dbfs
from dbfs_workers.base import compiling
from dbfs_workers.base.jit import Kernel, int64, kernel
from dbfs_workers.search.levels.led_levels import LedLevels


@pytest.fixture(scope="module")
def within() -> Iterator[distributed.Client]:
    with dbfs.connect(
        n_workers=2, threads_per_worker=2, processes=False, backend="cpu", dashboard_address=None
    ) as client:
        yield client


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("ready", ["none", "some"])
@pytest.mark.parametrize("spec", ["path:n=3000", "kronecker:scale=15", "grid2d:side=60"])
def test_distances_are_the_same(
    within: distributed.Client, monkeypatch: pytest.MonkeyPatch, spec: str, ready: str, ranks: int
) -> None:
    with dbfs.load(spec, client=within, ranks=ranks, progress=False) as graph:
        sources = graph.sample_sources(3)
        wanted = [graph.bfs(source).distances() for source in sources]
        turns = itertools.count()
        # The kernels become ready on one rank before the other.
        monkeypatch.setattr(compiling.Optional, "ready", lambda kernels: ready == "some" and next(turns) % 3 != 0)
        for source, expected in zip(sources, wanted, strict=True):
            for _ in range(2):
                result = graph.bfs(source, predecessors=True, validate=True)
                np.testing.assert_array_equal(result.distances(), expected)


@pytest.mark.parametrize("ready", [True, False])
def test_led_levels_wait_for_their_kernels(
    within: distributed.Client, monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    with dbfs.load("path:n=3000", client=within, ranks=2, progress=False) as graph:
        if not ready:
            monkeypatch.setattr(compiling.Optional, "ready", lambda kernels: False)
        led: list[LedLevels] = []
        run = LedLevels.run
        monkeypatch.setattr(LedLevels, "run", lambda levels, *given: (led.append(levels), run(levels, *given))[1])
        assert graph.bfs(0).depth == 2999
        assert bool(led) is ready


def test_kernels_are_ready_once_all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [kernel(int64, int64)(lambda value: value + 1), kernel(int64, int64)(lambda value: value + 2)]
    optional = compiling.Optional("a module")
    monkeypatch.setattr(compiling, "found", lambda wanted: made)
    monkeypatch.setattr(compiling, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(Kernel, "kept", property(lambda one: one is made[0]))
    assert not optional.ready() and not made[0].signatures
    monkeypatch.setattr(Kernel, "kept", True)
    assert optional.ready() and all(one.signatures for one in made)
