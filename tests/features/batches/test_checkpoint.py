"""Checkpoints of measures: a killed process goes on, and files that do not fit are refused."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.base.records import RunProgress
from dbfs.edges.writers.target import Target
from dbfs.errors import FormatError, InvalidOptionError, OutputError, UnreadableFileError
from dbfs.features.batches import checkpoint, diameter, sweeps
from dbfs.features.batches.checkpoint import Checkpoint
from dbfs.graph.traversing import traverse

# The process measures. In a run after the file has enough sources it prints a line, and waits to be killed.
KILLED = """
import sys, dbfs
import numpy as np
from dbfs.features.batches import checkpoint, diameter, sweeps
sweeps.MOST_SOURCES, checkpoint._PAUSE = 50, 0
diameter.MOST_SOURCES, diameter.DEEP = 1, (1 << 20, 1)
diameter.SMALL_WORLD = diameter.DEEP
path, measure, enough = sys.argv[1:]
if __name__ == "__main__":
    def tell(made):
        with np.load(path) as kept:
            if kept["finished"] >= int(enough):
                print(flush=True)
                sys.stdin.read()
    with dbfs.connect(n_workers=2, backend="cpu", processes=False, dashboard_address=None) as client:
        graph = dbfs.load("uniform:n=200,m=1200", client=client)
        getattr(graph, measure)(progress=tell, checkpoint=path)
"""


@pytest.fixture
def graph(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 10)
    with dbfs.load("grid2d:side=9", client=client, ranks=2) as graph:
        yield graph


class StoppedError(Exception):
    """Raised by a progress function to end a measure."""


def stopped_after(least: int, call: Any, *, when: Callable[[], bool] = lambda: True, **options: Any) -> None:
    """End a call after some sources of a run, at a time."""

    def stop(made: RunProgress) -> None:
        if made.finished >= least and when():
            raise StoppedError

    with pytest.raises(StoppedError):
        call(progress=stop, **options)


def single_traversals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no batch take the place of the traversals of a diameter."""
    monkeypatch.setattr(diameter, "MOST_SOURCES", 1)
    for name in ("DEEP", "SMALL_WORLD"):
        monkeypatch.setattr(diameter, name, (1 << 20, 1))


def values(measured: Any) -> Any:
    return measured if isinstance(measured, int) else measured.values.tolist()


def finished(path: Path) -> int:
    with np.load(path) as kept:
        return int(kept["finished"])


@pytest.mark.full
@pytest.mark.parametrize(("measure", "enough"), [("closeness_centrality", 100), ("diameter", 7)])
def test_a_killed_process_goes_on(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measure: str, enough: int
) -> None:
    # More sources than those of a group are put near each other. The process has groups of this size.
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 50)
    single_traversals(monkeypatch)
    path, whole = tmp_path / "kept.npz", tmp_path / "whole.npz"
    command = [sys.executable, "-c", KILLED, str(path), measure, str(enough)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert finished(path) == enough
    # Another number of ranks has the same edges.
    with dbfs.load("uniform:n=200,m=1200", client=client, ranks=3) as graph:
        seen: list[RunProgress] = []
        call = getattr(graph, measure)
        found = values(call(checkpoint=path, progress=seen.append))
        assert measure == "diameter" or min(made.finished for made in seen) >= enough
        assert found == values(call(checkpoint=whole))
        assert 0 < finished(path) - enough < finished(whole)
        seen.clear()
        assert (values(call(checkpoint=path, progress=seen.append)), seen) == (found, [])


@pytest.mark.full
@pytest.mark.parametrize("measure", ["diameter", "radius"])
def test_bounds_of_eccentricities_go_on(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measure: str
) -> None:
    traversals = 0

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal traversals
        traversals += 1
        return traverse(*given, **options)

    monkeypatch.setattr(checkpoint, "_PAUSE", 0)
    monkeypatch.setattr(diameter, "traverse", counted)
    single_traversals(monkeypatch)
    path = tmp_path / "kept.npz"
    with dbfs.load("uniform:n=200,m=1200", client=client, ranks=2) as graph:
        call = getattr(graph, measure)
        right, needed = call(), traversals
        stopped_after(1, call, when=lambda: path.exists() and finished(path) >= needed // 2, checkpoint=path)
        kept, traversals = finished(path), 0
        assert 0 < kept < needed
        assert call(checkpoint=path) == right
        assert 0 < traversals == finished(path) - kept < needed
        # Bounds are of any measure of eccentricities, and of no other one.
        assert graph.radius(checkpoint=path) == graph.radius()
        assert graph.diameter(checkpoint=path) == graph.diameter()
        with pytest.raises(InvalidOptionError, match="another measure: bounds of eccentricities, not wiener_index"):
            graph.wiener_index(checkpoint=path)


@pytest.mark.parametrize("directed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_every_measure_goes_on(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directed: bool
) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 10)
    theirs = nx.gnp_random_graph(70, 0.12, 3, directed=directed)
    src, dst = np.array(list(theirs.edges)).T
    with dbfs.load(dbfs.from_arrays(src, dst, n=70, directed=directed), client=client, ranks=2) as graph:
        for number, (call, options) in enumerate(
            [
                (graph.closeness_centrality, {}),
                (graph.closeness_centrality, {"sample": 50}),
                (graph.harmonic_centrality, {}),
                (graph.eccentricity, {}),
                (graph.wiener_index, {}),
                (graph.average_shortest_path_length, {}),
                (graph.neighbourhood_function, {"sample": 60}),
                (graph.khop_sizes, {"k": 2}),
                (graph.diameter, {}),
                (graph.radius, {}),
            ]
        ):
            path = tmp_path / f"{number}.npz"
            stopped_after(30, call, checkpoint=path, **options)
            assert 0 < finished(path) < 50
            found, expected = call(checkpoint=path, **options), call(**options)
            for name, value in vars(expected).items() if hasattr(expected, "sources") else [("", expected)]:
                ours = getattr(found, name) if name else found
                if isinstance(value, np.ndarray | float):
                    np.testing.assert_allclose(ours, value, rtol=1e-12)
                else:
                    assert ours == value


@pytest.mark.full
def test_a_checkpoint_of_something_else_is_refused(client: distributed.Client, graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    stopped_after(20, graph.closeness_centrality, checkpoint=path)
    kept = path.read_bytes()
    for call, options, words in [
        (graph.harmonic_centrality, {}, "another measure: closeness_centrality by source, not harmonic_centrality by"),
        (graph.closeness_centrality, {"sample": 40}, "not closeness_centrality, rows of sums by vertex, sampled;"),
        (graph.closeness_centrality, {"max_depth": 4}, "not closeness_centrality by source within 4;"),
        (graph.closeness_centrality, {"vertices": range(80)}, "another set of sources: 81 sources"),
    ]:
        with pytest.raises(InvalidOptionError, match=words):
            call(checkpoint=path, **options)
    paths = tmp_path / "paths.npz"
    graph.betweenness_centrality(checkpoint=paths)
    with pytest.raises(InvalidOptionError, match="not betweenness_centrality, with endpoints;"):
        graph.betweenness_centrality(endpoints=True, checkpoint=paths)
    # A lattice of as many vertices and edges, but one of them elsewhere.
    pairs = [pair for pair in nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 9)).edges if pair != (0, 1)]
    for more, fits in ((0, 1), True), ((0, 80), False):
        # Neither the layout nor the number of ranks makes it another graph.
        with dbfs.load(dbfs.from_arrays(*np.array([*pairs, more]).T), client=client, ranks=4, layout="2d") as other:
            if fits:
                assert np.array_equal(
                    other.closeness_centrality(checkpoint=tmp_path / "same.npz").values,
                    graph.closeness_centrality(checkpoint=tmp_path / "same.npz").values,
                )
            else:
                with pytest.raises(InvalidOptionError, match="another graph: undirected, 81 vertices, edges"):
                    other.closeness_centrality(checkpoint=path)
    assert path.read_bytes() == kept


def test_an_updated_graph_is_another_one(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 10)
    path = tmp_path / "kept.npz"
    with dbfs.load("path:n=81", client=client, ranks=2, mutable=True) as graph:

        def update(made: RunProgress) -> None:
            if made.finished >= 40 and not graph.version:
                graph.insert_edges([(0, 80)])

        with pytest.raises(InvalidOptionError, match="from version 0 to 1|of version 0"):
            graph.eccentricity(progress=update, checkpoint=path)
        # What was made of the version before is whole.
        assert 0 < finished(path) <= 40
        with pytest.raises(InvalidOptionError, match="another graph"):
            graph.eccentricity(checkpoint=path)
        graph.delete_edges([(0, 80)])
        found = graph.eccentricity(checkpoint=path).values
        assert found.tolist() == [max(vertex, 80 - vertex) for vertex in range(81)]


@pytest.mark.parametrize("measure", ["betweenness_centrality", "harmonic_centrality"])
def test_a_part_that_is_not_taken_is_not_kept(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measure: str
) -> None:
    """An update comes between the end of a run and the state with the run's sources."""
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 20)
    monkeypatch.setattr(checkpoint, "_PAUSE", 1e9)
    path = tmp_path / "kept.npz"
    with dbfs.load("grid2d:side=9", client=client, ranks=2, mutable=True) as graph:
        call, take = getattr(graph, measure), Checkpoint.take

        def updated(kept: Checkpoint, finished: int, state: Any) -> None:
            if finished >= 60 and not graph.version:
                graph.insert_edges([(0, 80)])
            take(kept, finished, state)

        monkeypatch.setattr(Checkpoint, "take", updated)
        with pytest.raises(InvalidOptionError, match="of version 0"):
            call(sample=70, checkpoint=path)
        assert finished(path) == 40
        graph.delete_edges([(0, 80)])
        np.testing.assert_allclose(call(sample=70, checkpoint=path).values, call(sample=70).values, rtol=1e-12)


def test_files_that_are_no_checkpoints(graph: Graph, tmp_path: Path) -> None:
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.arange(3))
    np.savez(archive, told=np.arange(3))
    for content in b"", b"text", array.getvalue(), archive.getvalue(), archive.getvalue()[:-9]:
        path = tmp_path / "other"
        path.write_bytes(content)
        with pytest.raises(FormatError, match="is no checkpoint of a measure"):
            graph.wiener_index(checkpoint=path)
        assert path.read_bytes() == content
    with pytest.raises(InvalidOptionError, match="there is no folder"):
        graph.wiener_index(checkpoint=tmp_path / "none" / "kept.npz")
    with pytest.raises(OutputError, match="can't be written"):
        graph.wiener_index(checkpoint="/proc/kept.npz")


def test_a_file_that_can_not_be_read(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.npz"
    graph.wiener_index(checkpoint=path)

    def load(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkpoint.np, "load", load)
    with pytest.raises(UnreadableFileError, match="kept.npz can't be read: Permission denied"):
        graph.wiener_index(checkpoint=path)


def test_a_slow_disk_is_written_to_seldom(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, saves = [0.0], 0
    opened = Target.opened

    def slow(target: Any, compression: str) -> Any:
        nonlocal saves
        saves += 1
        clock[0] += 1
        return opened(target, compression)

    monkeypatch.setattr(Target, "opened", slow)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    kept = Checkpoint(graph, "measure", (np.arange(81),), np.zeros(0), tmp_path / "kept.npz")
    for number in range(1, 81):
        clock[0] += 1
        kept.take(number, np.zeros(number))
    kept.save()
    assert (saves, finished(tmp_path / "kept.npz")) == (5, 80)
