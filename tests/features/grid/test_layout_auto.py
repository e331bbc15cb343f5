"""``layout="auto"``: what it takes, by which reason, and what graphs and estimates say of it."""

from collections.abc import Iterator
from pathlib import Path

import dask
import distributed
import pytest
from click.testing import CliRunner

import dbfs
from benchmarks.level_counts import LevelCounts
from dbfs.building.builder import LayoutChoice
from dbfs.building.on_cpu import HostBuilder
from dbfs.cli import main
from dbfs.errors import GraphTooLargeError, InvalidOptionError
from dbfs.features.grid import layout as rule
from dbfs.features.grid.building import GridBuilder
from dbfs.features.grid.layout import faster_layout, fitting_layout, traversal_seconds
from dbfs_workers.search.exchange.hosts import Hosts
from tests.support.graphs import random


@pytest.fixture(scope="module")
def nine() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=9, backend="cpu", dashboard_address=None, processes=False) as client:
        yield client


@pytest.mark.parametrize("bottom_up", [False, True])
@pytest.mark.parametrize("ranks", [1, 4, 16, 64])
def test_one_host_is_striped(ranks: int, bottom_up: bool) -> None:
    chosen = faster_layout(2**26, 2**31, Hosts.one(ranks), bottom_up=bottom_up)
    assert chosen.layout == "1d"
    assert "one host" in chosen.why


def test_many_hosts_of_a_rank_each_make_a_grid() -> None:
    layouts = [faster_layout(2**26, 2**31, Hosts.apart(p), bottom_up=True).layout for p in (2, 4, 64, 256)]
    assert layouts == ["1d", "1d", "2d", "2d"]
    # Before the first vertex is sent, crossings are all that a small graph takes.
    assert faster_layout(2**12, 2**17, Hosts.apart(64), bottom_up=True).layout == "1d"
    # Without bottom-up levels every edge is looked at in either layout.
    assert faster_layout(2**26, 2**31, Hosts.apart(16), bottom_up=False).layout == "2d"


def test_ranks_that_fill_a_host_send_as_many_bitmaps_in_either_layout() -> None:
    # A row of the grid is a host: its frontier goes to all other hosts, as in 1-D, and more edges are looked at.
    seconds = traversal_seconds(2**26, 2**31, Hosts.even(256, 16), bottom_up=True)
    assert seconds["1d"] < seconds["2d"]


def test_the_model_has_as_many_levels_as_reach_all_vertices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "_BYTE", 0.0)
    monkeypatch.setattr(rule, "_EDGE", 0.0)
    # Of a source with 16 neighbours and so on, level 4 reaches 65,536 vertices; one more level finds none.
    for n, levels in ((60_000, 5), (4_000, 4)):
        seconds = traversal_seconds(n, 16 * n, Hosts.apart(4), bottom_up=False)
        assert seconds == {"1d": levels * rule._CROSSING, "2d": 2 * levels * rule._CROSSING}


def test_thin_graphs_are_striped() -> None:
    chosen = faster_layout(10**7, 24 * 10**6, Hosts.apart(64), bottom_up=False)
    assert chosen == LayoutChoice("1d", "fewer than 8 edges a vertex may make many levels")
    assert faster_layout(0, 0, Hosts.apart(4), bottom_up=True).layout == "1d"


def test_the_models_bytes_of_bitmaps_are_those_counted() -> None:
    n, src, dst = random(4096, 80_000, 3)
    # Hosts of one rank each: all bytes leave a host, and only bytes differ if nothing else takes time.
    share = {}
    for layout in ("1d", "2d"):
        levels = list(LevelCounts(n, src, dst, 16, layout).traverse(5, predecessors=False))
        share[layout] = sum(int(level.bytes_sent.sum()) for level in levels if level.bottom_up)
    bitmap = n / (8 * 16)
    assert share["1d"] % (16 * 15 * bitmap) == 0
    assert share["2d"] <= share["1d"] * 9 / 15


@pytest.mark.parametrize(("fitting", "taken"), [({"1d", "2d"}, "1d"), ({"1d"}, "1d"), ({"2d"}, "2d"), (set(), "1d")])
def test_the_other_layout_is_taken_if_only_that_fits(fitting: set[str], taken: str) -> None:
    faster = LayoutChoice("1d", "faster")
    chosen = fitting_layout(faster, fitting.__contains__)
    assert chosen.layout == taken
    assert chosen == faster or chosen.why == "1-D does not fit the workers' memory, and 2-D does"


@pytest.mark.full
def test_what_is_loaded(nine: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, src, dst = random(400, 8000, 1)
    dense = dbfs.from_arrays(src, dst, n=n)

    def loaded(edges: object = dense, **options: object) -> str:
        with dbfs.load(edges, client=nine, layout="auto", **options) as graph:  # type: ignore[arg-type]
            assert (" grid, " in repr(graph)) == (graph.layout == "2d")
            assert graph.bfs(0, validate=True).reached == n
            return graph.layout

    assert loaded() == "1d"
    with monkeypatch.context() as patched:
        patched.setattr("dbfs.building.build.hosts_of", lambda gang: Hosts.apart(gang.p))
        patched.setattr(rule, "_CROSSING", 0.0)
        patched.setattr(rule, "_EDGE", 0.0)
        assert loaded() == "2d"
        assert loaded(mutable=True) == "1d"
        # The numbers of vertices and edges are known only after reading.
        path = tmp_path / "edges.txt"
        path.write_text("".join(f"{u} {v}\n" for u, v in zip(src, dst, strict=True)))
        assert loaded(path) == "1d"
        with dbfs.load(dense, client=nine) as graph:
            graph.save(tmp_path / "graph")
        assert loaded(tmp_path / "graph") == "1d"
        with dask.config.set({"dbfs.exchange": "tcp"}):
            assert loaded() == "1d"

    def refuse(*_: object) -> None:
        raise GraphTooLargeError("too large")

    monkeypatch.setattr(HostBuilder, "require_fit", refuse)
    monkeypatch.setattr(GridBuilder, "require_fit", lambda *_: None)
    assert loaded() == "2d"


def test_an_estimate_says_which_layout_and_why() -> None:
    spec, auto = "kronecker:scale=26", dbfs.BuildOptions(layout="auto")
    striped, grid = (dbfs.estimate(spec, 64, dbfs.BuildOptions(layout=layout), hosts=64) for layout in ("1d", "2d"))
    assert (striped.layout, grid.layout, striped.why, grid.why) == ("1d", "2d", "", "")
    assert dbfs.estimate(spec, 64, dbfs.BuildOptions(layout="2d"), backend="cuda").layout == "2d"
    chosen = dbfs.estimate(spec, 64, auto, hosts=64)
    assert (chosen.layout, chosen.partition) == ("2d", grid.partition)
    assert "in 1-D and" in chosen.why
    # Only one of them fits.
    less, more = sorted((striped.peak_bytes, grid.peak_bytes))
    small = dbfs.estimate(spec, 64, auto, hosts=64, memory=int((less + more) / 2 / 0.8))
    assert small.fits
    assert small.layout == ("1d" if less == striped.peak_bytes else "2d")
    assert dbfs.estimate(spec, 64, auto, mutable=True).why == "blocks of the 2-D partition have no pages for updates"
    assert dbfs.estimate(spec, 64, auto, backend="cuda").why == "on GPUs 1-D has resident kernels, and 2-D has none"


def test_unknown_layouts_are_refused(nine: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="unknown layout 'square'; choose one of 1d, 2d, auto"):
        dbfs.load(dbfs.path(5), client=nine, layout="square")


def test_the_commands_take_auto() -> None:
    answer = CliRunner().invoke(main, ["run", "path:n=50", "--source", "0", "--ranks", "2", "--layout", "auto"])
    assert answer.exit_code == 0, answer.output
    answer = CliRunner().invoke(main, ["estimate", "kronecker:scale=20", "--ranks", "4", "--layout", "auto"])
    assert "Layout 1d: all ranks share the memory of one host, where 1-D is faster." in answer.output
