"""Names and paths from outside, in every place that shows them: terminals, pages, notebooks, metrics and messages."""

import os
import pickle
from pathlib import Path
from typing import Any

import distributed
import prometheus_client
import pytest
from click.testing import CliRunner, Result

import dbfs
from dbfs.base import progress
from dbfs.cli import main
from dbfs.dashboard import metrics
from dbfs.errors import DbfsError, InvalidOptionError, VersionMismatchError
from dbfs.service.messages import CancelRun, ListGraphs, Reserve
from dbfs_workers.serving import rpc

# Printable, and markup to each of those who show it: rich, emoji codes, HTML, matplotlib, Prometheus.
NAME = '[/red] :heart: <b onclick="x()">& $\\frac "quoted" \\n'

# A title for the terminal, a colour, a line of its own, and a byte that is not UTF-8.
FILE = b"g\x1b]0;owned\x07\x1b[31m\n\xff.txt"
SHOWN = "g\\x1b]0;owned\\x07\\x1b[31m\\n\\udcff.txt"


def invoke(client: distributed.Client, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"DASK_SCHEDULER_ADDRESS": client.scheduler.address})


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + FILE))
    path.write_text("0 1\n1 2\n")
    return path


def shows(client: distributed.Client, graph: dbfs.Graph, name: str) -> None:
    """Check that every view has the name, and has it harmless."""
    listed = invoke(client, "graphs")
    assert listed.exit_code == 0
    # Wide names take several lines of a table.
    assert "".join(name.split())[:40] in "".join(listed.stdout.split())
    assert "\x1b" not in listed.stdout
    label = name.replace("\\", "\\\\").replace('"', '\\"')
    # The metrics are those of the newest scheduler in this process, and another test may have started one.
    client.run_on_scheduler(lambda dask_scheduler: metrics.register(dask_scheduler.plugins["dbfs"].records))
    assert f'dask_dbfs_graph_vertices{{graph="{label}"}}' in prometheus_client.generate_latest().decode()
    for html in (graph._repr_html_(), dbfs.cluster_state(client=client)._repr_html_()):
        assert "<b onclick" not in html
        assert "\x1b" not in html
    assert name in repr(graph)
    result = graph.bfs(0)
    result.plot_frontier().figure.canvas.draw()
    result.release()


def test_a_name_that_is_markup_is_shown_as_it_is(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=10", client=client, name=NAME) as graph:
        shows(client, graph, NAME)
        assert dbfs.open(NAME, client=client).n == 10


def test_a_path_that_is_not_printable(client: distributed.Client, hostile: Path, leaves_nothing: None) -> None:
    with dbfs.load(hostile, client=client) as graph:
        assert graph.n == 3
        assert graph.name == f"{hostile.parent}/{SHOWN}"
        shows(client, graph, graph.name)


def test_commands_write_a_path_that_is_not_printable(hostile: Path, tmp_path: Path) -> None:
    for out in (hostile.with_suffix(".mtx"), Path(f"{tmp_path}/[bold].mtx")):
        written = CliRunner().invoke(main, ["convert", str(hostile), str(out)])
        assert written.exit_code == 0, written.output
        assert "3 vertices" in written.stdout
        assert "\x1b" not in written.output


def test_an_error_names_such_a_path(hostile: Path) -> None:
    hostile.write_text("0 1\nx\x1b[31m y\n")
    with pytest.raises(DbfsError) as raised:
        for piece in dbfs.edges.resolve.edge_list(hostile).cut(10):
            piece.read()
    assert SHOWN in str(raised.value)
    assert str(raised.value).isprintable()
    failed = CliRunner().invoke(main, ["run", f"{hostile}.none", "--source", "0"])
    assert failed.exit_code == 2
    assert failed.stderr == f"Error: {hostile.parent}/{SHOWN}.none: no file there; expected files of edges\n"


def test_a_bar_shows_such_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    monkeypatch.setattr(progress, "_TerminalBar", lambda what, total: named.append(what) or progress._NoBar())
    with progress.bar(f"writing {os.fsdecode(FILE)}", progress=True):
        pass
    assert named == [f"writing {SHOWN}"]


def test_names_that_no_graph_may_have(client: distributed.Client) -> None:
    names: list[Any] = ["", "\x1b[31m", "a\udcff", "x" * 10_000_000]
    for name in names:
        for call in (dbfs.load, dbfs.open):
            arguments = ("path:n=10",) if call is dbfs.load else ()
            keywords = {"name": name, "client": client}
            words = "name must be printable text of 1 to 255 characters, not "
            with pytest.raises(InvalidOptionError, match=words) as raised:
                call(*arguments, **keywords)
            assert len(str(raised.value)) < 200


def test_a_client_without_the_checks_is_refused_by_the_scheduler(client: distributed.Client) -> None:
    def answer(operation: str, message: Any) -> Any:
        async def ask() -> Any:
            return await getattr(client.scheduler, operation)(message=message)

        return client.sync(ask)

    names: list[Any] = [5, b"roads", "\udcff", "\x1b", "x" * 256, ["roads"]]
    for name in names:
        message = Reserve("id", client.id, (), name, replace=True)
        with pytest.raises(InvalidOptionError, match="dbfs_reserve: name must be printable text .* or None, not"):
            rpc.unpack("", message, answer(message.operation, pickle.dumps(message)))
    # Half a message, another message, and one without its field.
    other = CancelRun("run", client.id)
    del vars(other)["run_id"]
    for junk in (pickle.dumps(other)[:-3], b"\0" * 100, None, {}, pickle.dumps(ListGraphs()), pickle.dumps(other)):
        with pytest.raises(VersionMismatchError, match=r"dbfs_cancel_run: .* of another version\?"):
            rpc.unpack("", CancelRun("run", client.id), answer(CancelRun.operation, junk))
    # Nothing was reserved, and the service goes on.
    assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins["dbfs"].reserved) == {}
    with dbfs.load("path:n=10", client=client, name="roads") as graph:
        assert graph.bfs(0).depth == 9
