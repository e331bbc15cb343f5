"""``layout="auto"``: the rule, against the exact counts, and what a graph says of its layout."""

from collections.abc import Iterator
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dbfs
from dbfs.bench.level_counts import LevelCounts
from dbfs.building import layout as rule
from dbfs.building.layout import bytes_share
from dbfs.cli import main
from dbfs.errors import GraphTooLargeError, InvalidOptionError
from tests.support.graphs import random

MOST = 0.75


@pytest.fixture(scope="module")
def nine() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=9, backend="cpu", dashboard_address=None, processes=False) as client:
        yield client


def lattice(side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    at = np.arange(side * side).reshape(side, side)
    pairs = (at[:, :-1], at[:, 1:]), (at[:-1], at[1:])
    src, dst = (np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))
    return src, dst


def sent(counts: LevelCounts) -> int:
    return sum(int(level.bytes_sent.sum()) for level in counts.traverse(5, predecessors=False))


@pytest.mark.parametrize(("ranks", "wanted"), [(1, 1.0), (4, 1.0), (7, 2.0), (9, 0.75), (16, 0.6)])
def test_a_dense_graph_is_as_its_bitmaps(ranks: int, wanted: float) -> None:
    assert bytes_share(2**20, 2**25, ranks, bottom_up=True) == pytest.approx(wanted)


def test_a_thin_graph_sends_more_in_a_grid() -> None:
    assert bytes_share(10**6, 2_400_000, 16, bottom_up=False) > 1
    assert bytes_share(100, 0, 16, bottom_up=True) == 1


@pytest.mark.parametrize("ranks", [9, 16])
def test_where_the_rule_takes_a_grid_fewer_bytes_are_sent(ranks: int) -> None:
    for n, src, dst in (random(1024, 16_000, 3), random(1024, 8000, 5)):
        assert bytes_share(n, 2 * src.size, ranks, bottom_up=True) <= MOST
        assert sent(LevelCounts(n, src, dst, ranks, "2d")) <= MOST * sent(LevelCounts(n, src, dst, ranks, "1d"))


def test_where_a_graph_is_thin_a_grid_sends_more() -> None:
    src, dst = lattice(128)
    n = 128 * 128
    assert bytes_share(n, 2 * src.size, 16, bottom_up=True) > 1
    assert sent(LevelCounts(n, src, dst, 16, "2d")) > sent(LevelCounts(n, src, dst, 16, "1d"))


def test_what_is_loaded_in_a_grid(nine: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, src, dst = random(400, 8000, 1)
    dense = dbfs.from_arrays(src, dst, n=n)

    def chosen(edges: object = dense, ranks: int = 9, **options: object) -> str:
        with dbfs.load(edges, client=nine, ranks=ranks, layout="auto", **options) as graph:  # type: ignore[arg-type]
            assert ("in a 2-D partition" in repr(graph)) == (graph.layout == "2d")
            assert graph.bfs(0, validate=True).reached == n or edges is not dense
            return graph.layout

    assert chosen() == "2d"
    assert chosen(ranks=4) == "1d"
    assert chosen(dbfs.path(400)) == "1d"
    assert chosen(mutable=True) == "1d"
    # The numbers of vertices and edges are known only after reading.
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{u} {v}\n" for u, v in zip(src, dst, strict=True)))
    assert chosen(path) == "1d"
    with dbfs.load(dense, client=nine) as graph:
        graph.save(tmp_path / "graph")
    assert chosen(tmp_path / "graph") == "1d"
    with dask.config.set({"dbfs.exchange": "tcp"}):
        assert chosen() == "1d"

    def refuse(*_: object) -> None:
        raise GraphTooLargeError("too large")

    monkeypatch.setattr(rule.GridBuilder, "require_fit", refuse)
    assert chosen() == "1d"


def test_unknown_layouts_are_refused(nine: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="unknown layout 'square'; choose one of 1d, 2d, auto"):
        dbfs.load(dbfs.path(5), client=nine, layout="square")


def test_the_command_takes_auto() -> None:
    answer = CliRunner().invoke(main, ["run", "path:n=50", "--source", "0", "--ranks", "2", "--layout", "auto"])
    assert answer.exit_code == 0, answer.output
