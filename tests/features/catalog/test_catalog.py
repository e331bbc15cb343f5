"""Catalogs: what is read, what is loaded, and what is said of each graph."""

import json
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dask
import distributed
import pytest
from click.testing import CliRunner, Result

import dbfs
from dbfs.cli import main
from dbfs.cluster.gang import joined_workers
from dbfs.errors import FormatError, GraphNotFoundError, MissingFileError, UnreadableFileError
from dbfs.features.catalog import catalog
from dbfs.service.client import ServiceClient
from dbfs.service.messages import EndLoad, Reserve
from tests.support.gang import PATIENCE
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def saved(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid that two ranks saved."""
    folder = tmp_path_factory.mktemp("saved") / "grid"
    with dbfs.load("grid2d:side=6", client=client, ranks=2) as graph:
        graph.save(folder)
    return folder


@pytest.fixture(autouse=True)
def no_names_stay(client: distributed.Client) -> Iterator[None]:
    before = {status.name for status in dbfs.graphs(client=client)}
    yield
    for status in dbfs.graphs(client=client):
        if status.name not in before:
            dbfs.open(status.name, client=client).unload()


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def invoke(client: distributed.Client, *arguments: object) -> Result:
    command = ["load", *map(str, arguments), "--scheduler", client.scheduler.address]
    return CliRunner().invoke(main, command)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("graphs: {web: {folder: /a}, web: {folder: /b}}", "the key 'web' appears twice.*line 1, column 29"),
        ("graphs:\n  web: {folder: /a, folder: /b}", "the key 'folder' appears twice.*line 2"),
        ("graphs:\n  web: {folder: /a", "not YAML"),
        ("graph: {web: {folder: /a}}", "a catalog has the one key graphs, such as"),
        ("graphs: {}\nname: 5", "a catalog has the one key graphs, such as"),
        ("graphs: [web]", "a catalog has the one key graphs, such as"),
        ("- web", "a catalog has the one key graphs, such as"),
        ("", "a catalog has the one key graphs, such as"),
        ("graphs: !!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_what_is_no_catalog_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        catalog.read(write(tmp_path / "catalog.yaml", text))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"catalog .*none.yaml: no such file"):
        catalog.read(tmp_path / "none.yaml")
    with pytest.raises(UnreadableFileError, match="can't be read: Is a directory"):
        catalog.read(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"graphs: \xff")
    with pytest.raises(FormatError, match="not YAML"):
        catalog.read(tmp_path / "bytes.yaml")
    assert catalog.read(write(tmp_path / "empty.yaml", "graphs:\n")) == ([], [])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("web: /data/web", "must be a mapping such as {folder: /data/graphs/web}, not '/data/web'"),
        ("web: {}", "folder is missing"),
        ("web: {folder: 5}", "folder must be the folder, or the URL, of a saved graph, not 5"),
        ("web: {folder: FOLDER, rank: 2}", "unknown key 'rank'; the keys are folder, ranks, backend"),
        ("web: {folder: FOLDER, ranks: two}", "ranks must be a whole number of at least 1, not 'two'"),
        ("web: {folder: FOLDER, ranks: 0}", "ranks must be a whole number of at least 1, not 0"),
        ("web: {folder: FOLDER, ranks: true}", "ranks must be a whole number of at least 1, not True"),
        ("web: {folder: FOLDER, backend: gpu}", "backend must be one of auto, cpu, cuda, not 'gpu'"),
        ("web: {folder: FOLDER, backend: [cpu]}", "backend must be one of auto, cpu, cuda, not"),
        ("web: {folder: FOLDER, mutable: 1}", "mutable must be true or false, not 1"),
        ("web: {folder: FOLDER, room: 1.5}", "room must be a whole number of at least 0, not 1.5"),
        ("web: {folder: FOLDER/none}", "no such file"),
        ("web: {folder: 'path:n=9'}", "path:n=9"),
        ("7: {folder: FOLDER}", "a name must be a text, not 7; write it in quotes"),
        ("on: {folder: FOLDER}", "a name must be a text, not True; write it in quotes"),
        ('"a\\nb": {folder: FOLDER}', "name must be"),
    ],
)
def test_an_entry_with_a_fault_keeps_no_other_from_being_read(
    saved: Path, tmp_path: Path, entry: str, words: str
) -> None:
    text = f"graphs:\n  good: {{folder: {saved}}}\n  {entry.replace('FOLDER', str(saved))}\n"
    ((good,), (bad,)) = catalog.read(write(tmp_path / "catalog.yaml", text))
    assert (good.name, good.ranks) == ("good", 2)
    assert re.fullmatch(rf"not loaded \({tmp_path}/catalog.yaml, line 3\): \w+Error: .*", bad.words)
    assert words in bad.words


def test_a_catalog_is_loaded_but_for_its_bad_entries(client: distributed.Client, saved: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path / "catalog.yaml",
        f"graphs:\n  bad: {{folder: {tmp_path}/none}}\n  two: {{folder: {saved}}}\n"
        f"  worse: {{folder: {saved}, keep_edges: true}}\n  three: {{folder: {saved}, ranks: 3, order: degree}}\n",
    )
    first = invoke(client, "--catalog", file)
    assert first.exit_code == 1, first.output
    assert [line.split(" in ")[0] for line in first.stdout.splitlines()] == [
        "two: loaded on 2 ranks",
        "three: loaded on 3 ranks",
    ]
    bad, worse = first.stderr.splitlines()
    assert bad.startswith(f"bad: not loaded ({file}, line 2): MissingFileError: {tmp_path}/none")
    assert worse.startswith(f"worse: not loaded ({file}, line 4): InvalidOptionError: ")
    # Named graphs outlive the command's client.
    for name, ranks in (("two", 2), ("three", 3)):
        graph = dbfs.open(name, client=client)
        assert (graph.ranks, graph.order is not None) == (ranks, name == "three")
        result = graph.bfs(0, validate=True)
        assert result.distances().tolist() == [row + column for row in range(6) for column in range(6)]
    again = invoke(client, "--catalog", file, "--json")
    assert again.exit_code == 1
    found = {step["name"]: step["state"] for step in json.loads(again.stdout)}
    assert found == {"bad": "failed", "two": "present", "worse": "failed", "three": "present"}


def test_a_graph_waits_for_its_workers_and_no_other_graph_waits_with_it(
    monkeypatch: pytest.MonkeyPatch, client: distributed.Client, saved: Path, tmp_path: Path
) -> None:
    text = f"graphs: {{large: {{folder: {saved}, ranks: 99}}, small: {{folder: {saved}}}}}"
    # The clock of the waits passes the deadline at the first pause.
    clock = [0.0]
    passing = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _: clock.append(clock.pop() + PATIENCE + 1))
    monkeypatch.setattr(catalog, "time", passing)
    with dask.config.set({"dbfs.build-deadline": f"{PATIENCE}s"}):
        answer = invoke(client, "--catalog", write(tmp_path / "catalog.yaml", text))
    assert answer.exit_code == 1
    waits, loaded = answer.stdout.splitlines()
    joined = len(joined_workers(client))
    assert waits == f"large: waits for 99 workers, {joined} joined"
    assert loaded.startswith("small: loaded on 2 ranks")
    assert f"it still waits for 99 workers, {joined} joined" in answer.stderr
    # Both streams in the order of writing.
    order = [line for line in answer.output.splitlines() if "loaded" in line]
    assert [line.partition(":")[0] for line in order] == ["small", "large"]


def test_the_options_of_a_graph_and_a_catalog_exclude_each_other(client: distributed.Client, tmp_path: Path) -> None:
    file = tmp_path / "catalog.yaml"
    for given in (["path:n=5"], ["--name", "web"], ["--replace-first"], ["--ranks", 2], ["--mutable"]):
        answer = invoke(client, "--catalog", file, *given)
        assert answer.exit_code == 2
        option = "graph" if given == ["path:n=5"] else given[0]
        assert answer.stderr == f"Error: --catalog excludes {option}: its file has the options\n"
    assert "Missing argument 'GRAPH'" in invoke(client, "--name", "web").stderr
    assert "Missing option '--name'" in invoke(client, "path:n=5").stderr
    assert invoke(client, "--catalog", file).stderr == f"Error: catalog {file}: no such file\n"


def test_a_name_that_another_client_builds_is_waited_for(
    client: distributed.Client, saved: Path, tmp_path: Path
) -> None:
    service, graph_id = ServiceClient.of(client), uuid.uuid4().hex
    service.call(Reserve(graph_id, client.id, tuple(joined_workers(client))[:1], "web", False))
    with pytest.raises(GraphNotFoundError, match="the graph 'web' is being built; open it when it is whole"):
        dbfs.open("web", client=client)
    entries, _ = catalog.read(write(tmp_path / "catalog.yaml", f"graphs: {{web: {{folder: {saved}}}}}"))
    steps = catalog.load_all(entries, client, dbfs.load, dbfs.open)
    waits = next(steps)
    assert (waits.state, "a graph named 'web' is being built" in waits.words) == ("waits", True)
    service.call(EndLoad(graph_id, client.id, "a graph", "cancelled: by the test"))
    assert next(steps).state == "loaded"


def test_two_loads_of_a_catalog_at_once_load_each_graph_once(
    client: distributed.Client, other: distributed.Client, saved: Path, tmp_path: Path
) -> None:
    names = [f"graph-{index}" for index in range(3)]
    text = "".join(f"  {name}: {{folder: {saved}}}\n" for name in names)
    file = write(tmp_path / "catalog.yaml", f"graphs:\n{text}")
    found: list[catalog.Step] = []

    def load_all(of: distributed.Client) -> None:
        found.extend(catalog.load_all(catalog.read(file)[0], of, dbfs.load, dbfs.open))

    threads = [threading.Thread(target=load_all, args=(each,)) for each in (client, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ends = sorted((step.name, step.state) for step in found if step.state != "waits")
    assert ends == sorted((name, state) for name in names for state in ("loaded", "present"))
    listed = eventually(lambda: [status.name for status in dbfs.graphs(client=client)])
    assert sorted(name for name in listed if name in names) == names
