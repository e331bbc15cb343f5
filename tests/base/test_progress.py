"""Progress: what functions, listings and bars are told while builds and runs last, and that nobody else pays for it."""

import io
import re
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask
import distributed
import pytest

import dbfs
from dbfs.base import progress
from dbfs.base.records import BuildProgress, RunProgress
from dbfs.building import build
from dbfs.errors import InvalidOptionError
from dbfs.features.grid import building as grid_building
from dbfs.features.living import edges
from dbfs_workers.features.batches.path_sweeps import PathSweeps
from tests.support.runs import ENDLESS, Background


class SeenEnoughError(Exception):
    """What ends an endless run."""


@pytest.fixture(params=["shared_memory", pytest.param("tcp", marks=pytest.mark.full)])
def endless(client: distributed.Client, request: pytest.FixtureRequest) -> Iterator[dbfs.Graph]:
    with dask.config.set({"dbfs.exchange": request.param}), dbfs.load(f"path:n={ENDLESS}", client=client) as graph:
        yield graph


def test_a_run_is_told_of_while_it_lasts_and_ends_with_its_listener(endless: dbfs.Graph) -> None:
    told: list[RunProgress] = []

    def listen(run: RunProgress) -> None:
        told.append(run)
        if len({one.level for one in told}) == 4:
            raise SeenEnoughError

    with pytest.raises(SeenEnoughError):
        endless.bfs(0, direction="bottom-up", progress=listen)
    assert {(run.traversals, run.finished, run.direction) for run in told} == {(1, 0, "bottom-up")}
    levels = [run.level for run in told]
    assert levels == sorted(levels)
    assert levels[-1] < ENDLESS
    # A path reaches one vertex per level. Ranks are asked one after another: the level is that of the last one asked.
    assert all(0 < run.reached <= run.level + 1 + endless.ranks for run in told)
    assert [run.seconds for run in told] == sorted(run.seconds for run in told)
    # The run was cancelled, and the gang is free.
    assert endless.bfs(0, max_depth=3).reached == 4
    assert dbfs.runs(client=endless.gang.client) == []


def test_listed_runs_show_where_they_are(client: distributed.Client) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client) as graph:
        running = Background(graph)
        seen: list[int] = []
        while len(seen) < 3:
            status = dbfs.runs(client=client)[0].status
            if status.progress is not None and status.progress.level > max(seen, default=-1):
                seen.append(status.progress.level)
                assert status.progress.traversals == 1
        waiting = Background(graph, waits=True)
        first, second = dbfs.runs(client=client)
        assert (first.status.running, second.status.running, second.status.progress) == (True, False, None)
        second.cancel()
        first.cancel()
        assert running.join() is not None
        assert waiting.join() is not None


@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_the_last_word_is_exact(client: distributed.Client, engine: str) -> None:
    with dbfs.load("kronecker:scale=9", client=client) as graph:
        sources = graph.sample_sources(3)
        told: list[RunProgress] = []
        results = graph.bfs_many(sources, engine=engine, progress=told.append)
        last = told[-1]
        assert (last.traversals, last.finished, last.frontier) == (3, 3, 0)
        assert (last.reached, last.level) == (results[-1].reached, len(results[-1].reports))
        assert last.direction == results[-1].reports[-1].direction


def test_levels_of_the_taskgraph_engine_are_told_as_they_were(client: distributed.Client) -> None:
    """Several ranks bin a vertex that one of them labels: it counts once."""
    with dbfs.load("kronecker:scale=9", client=client) as graph:
        told: list[RunProgress] = []
        result = graph.bfs(graph.sample_sources(1)[0], engine="taskgraph", progress=told.append)
        frontiers = [report.frontier for report in result.reports]
        assert [(run.level, run.frontier, run.reached) for run in told[: len(frontiers)]] == [
            (level, frontier, sum(frontiers[: level + 1])) for level, frontier in enumerate(frontiers)
        ]


@pytest.mark.full
def test_many_traversals_are_counted_as_they_end(client: distributed.Client) -> None:
    with dbfs.load("path:n=20000", client=client, ranks=2) as graph:
        told: list[RunProgress] = []
        graph.bfs_many([0, 1, 19_999] * 4, progress=told.append)
        places = [(run.finished, run.level) for run in told]
        assert places[:-1] == sorted(places[:-1])
        assert places[-1] == (12, 20_000)


def test_a_build_is_told_of_while_it_lasts(client: distributed.Client) -> None:
    told: list[BuildProgress] = []
    with (
        dask.config.set({"dbfs.liveness-interval": "20 ms", "dbfs.build.piece-edges": 20_000}),
        dbfs.load("kronecker:scale=16", client=client, progress=told.append) as graph,
    ):
        assert graph.input_edges == 1 << 20
    done = [build.done for build in told]
    assert len(told) > 2
    assert done == sorted(done)
    assert done[0] < told[-1].tasks
    read = [build.pieces_read for build in told]
    assert read == sorted(read)
    assert {build.stage for build in told} <= {"reading", "exchanging", "building"}
    assert {build.pieces for build in told} <= {0, 53}
    assert any(build.pieces for build in told)
    binned = [build.binned for build in told if build.binned]
    assert binned
    assert all(len(ranks) == 4 and sum(ranks) <= 53 for ranks in binned)
    assert [sum(ranks) for ranks in binned] == sorted(sum(ranks) for ranks in binned)


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest takes stderr back before the test begins."""
    stderr = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0.0)
    return stderr


def test_every_task_of_a_build_belongs_to_a_stage() -> None:
    """By name, so that a bar never shows the key of a task."""
    rooms = Path(build.__file__).parent, Path(grid_building.__file__).parent, Path(edges.__file__).parent
    sources = "".join(path.read_text() for room in rooms for path in room.glob("*.py"))
    names = set(re.findall(r'(?:\(f(?="[a-z-]+-\{(?:self\.)?token\}")|_key\(|\badd\([^,"]+, )"([a-z-]+[a-z])', sources))
    assert "id-bytes" in names
    assert names - build._STAGES.keys() == {
        *("free-bins", "sort", "partition", "partition-info", "blocks", "row-degrees"),
        # Of a batch of changes, which shows no progress.
        "bin-changes",
        # Of the partitions in 1d of a graph in another layout, for a save or for weights.
        "join-parts",
        # Of the search for edges that are listed at one end only, which most builds do without.
        *("missing", "first-missing"),
    }


def test_bars_in_a_terminal_and_none_elsewhere(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with dask.config.set({"dbfs.liveness-interval": "20 ms"}), dbfs.load("kronecker:scale=14", client=client) as graph:
        for _ in progress.track([1], "roots"):
            graph.bfs(1, engine="taskgraph")
        shown = terminal.getvalue()
        assert "building kronecker:scale=14" in shown
        assert "roots" in shown
        assert "bfs of kronecker:scale=14" in shown
        assert "reached" in shown
        piped = io.StringIO()
        monkeypatch.setattr(sys, "stderr", piped)
        graph.bfs(1, engine="taskgraph")
        with progress.bar("nothing to see"):
            pass
        assert piped.getvalue() == ""


def test_a_bar_of_many_sources_says_what_for_and_how_long_still(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    levels = RunProgress(300, 100, 9, "top-down", 7, 1234, 1.0)
    with progress.run_reporter(True, "karate", 34, 300, "betweenness_centrality") as report:
        assert report is not None
        report(levels)
        shown = terminal.getvalue()
        assert "betweenness_centrality of karate" in shown
        # The first hundred may be those of a checkpoint.
        assert "100 of 300: level 9 top-down, frontier 7, reached 1,234" in shown
        notes: list[str] = []
        monkeypatch.setattr(progress._TerminalBar, "set", lambda _bar, _done, note: notes.append(note))
        report(replace(levels, finished=150, frontier=0))
    assert re.fullmatch(r"150 of 300, about \S+ \S+ left", notes[0])


@pytest.mark.parametrize("call", [pytest.param("betweenness_centrality", marks=pytest.mark.full), "bfs_batch"])
def test_the_sources_of_a_batch_are_counted_as_they_are_completed(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """In the sweeps of betweenness, and where sources share too little and are traversed from one by one."""
    cross = PathSweeps._cross

    def slowly(self: PathSweeps, number: int) -> int:
        time.sleep(0.2)
        return cross(self, number)

    monkeypatch.setattr(PathSweeps, "_cross", slowly)
    swept = call == "betweenness_centrality"
    with dbfs.load("kronecker:scale=8" if swept else "path:n=20000", client=client, ranks=2) as graph:
        told: list[RunProgress] = []
        given = {"sample": 200} if swept else {"sources": range(200)}
        getattr(graph, call)(**given, progress=told.append)
    finished = [one.finished for one in told]
    assert finished == sorted(finished)
    assert (finished[-1], {one.traversals for one in told}) == (200, {200})
    assert any(0 < one < 200 for one in finished)


def test_bars_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with progress.bar("hidden", progress=False):
        pass
    with dask.config.set({"dbfs.progress": False}), progress.bar("hidden"):
        pass
    assert terminal.getvalue() == ""


def test_the_note_of_a_bar_is_drawn_however_short_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with progress.bar("short", 2) as bar:
        bar.set(1, "one of two")
    assert "one of two" in terminal.getvalue()


def test_a_long_note_leaves_the_bar_and_the_time_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    note = "level 1,234 bottom-up, frontier 12,345,678, reached 123,456,789 of the vertices"
    with progress.bar("bfs of kronecker:scale=26,edgefactor=16,seed1=2,seed2=3", 2) as bar:
        bar.set(1, note)
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.getvalue()))
    (line,) = {line for line in lines if "level" in line}
    assert re.fullmatch(r". bfs of kronecker:scale=26,e… ━{10}.{10} level.*… 0:00:0\d", line), line
    assert len(line) == 80


def test_bars_that_end_in_another_order_than_they_began(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    first, second = progress.bar("first", 2), progress.bar("second", 2)
    one, two = first.__enter__(), second.__enter__()
    one.advance()
    first.__exit__(None, None, None)
    two.set(2, "all of [it]")
    second.__exit__(None, None, None)
    with progress.bar("third"):
        pass
    shown = terminal.getvalue()
    assert all(word in shown for word in ("first", "second", "third"))


class Output:
    """An output below a notebook's cell, as IPython's display handle: its states, oldest first."""

    def __init__(self) -> None:
        self.states: list[dict[str, str]] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> "Output":
        assert raw
        assert display_id
        self.states.append(data)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.states.append(data)


def test_bars_in_a_notebook(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    terminal = open_terminal(monkeypatch)
    shell = type("ZMQInteractiveShell", (), {"config": {}})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    output = Output()
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=output.display))
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    with progress.bar("cells <1>", 4) as bar:
        bar.set(1, "the <first>")
        bar.advance(2)
    assert [state["text/plain"] for state in output.states] == [
        "cells <1> [                    ] 0%, 0 s",
        "cells <1> [#####               ] 25%, the <first>, 0 s",
        "cells <1> [###############     ] 75%, the <first>, 0 s",
        "",
    ]
    second = '<div>cells &lt;1&gt; <progress value="0.250"></progress> 25%, the &lt;first&gt;, 0 s</div>'
    assert output.states[1]["text/html"] == second
    assert output.states[-1]["text/html"] == ""
    with progress.bar("endless"):
        pass
    assert output.states[-2]["text/html"] == "<div>endless <progress></progress> 0 s</div>"
    # Nothing on stderr, which a notebook shows in red.
    assert terminal.getvalue() == ""
    # Other tests' threads and open sockets warn at any time; Rich's advice to install widgets is a UserWarning.
    assert [str(each) for each in recwarn if issubclass(each.category, UserWarning)] == []


def test_a_notebooks_bar_is_redrawn_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=output.display))
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    for _ in progress.track(range(10_000), "steps", True):
        pass
    assert 3 <= len(output.states) < 100
    assert "0 of 10,000" in output.states[1]["text/plain"]


def test_a_bar_that_nobody_can_mean() -> None:
    with (
        dask.config.set({"dbfs.progress": "perhaps"}),
        pytest.raises(InvalidOptionError, match=r"dbfs\.progress: 'perhaps' is not one of auto, true, false"),
        progress.bar("x"),
    ):
        pass
