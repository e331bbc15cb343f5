"""The scheduler's log and metrics of a day of two clients: who loaded, saved and was refused what, and why."""

import asyncio
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs.errors import (
    FormatError,
    GraphTooLargeError,
    InvalidOptionError,
    NameTakenError,
    NoWorkersError,
    QueueFullError,
)
from dbfs.service import log
from dbfs.service.client_notes import ClientNotes
from dbfs.service.entries import Reservation
from dbfs.service.messages import EndLoad, NoteSave
from tests.support.operated import operated
from tests.support.runs import ENDLESS, Background
from tests.support.waiting import eventually

pytestmark = [pytest.mark.alone, pytest.mark.full]

GRAPHS, RUNS = "dbfs.graphs", "dbfs.service.log"


@contextmanager
def program(address: str, path: str) -> Iterator[distributed.Client]:
    """A client of a program of that path, which introduced itself."""
    with pytest.MonkeyPatch.context() as patch, distributed.Client(address, set_as_default=False) as client:
        patch.setattr(sys, "argv", [path])
        dbfs.install(client)
        patch.undo()
        yield client


@pytest.mark.parametrize("level", [pytest.param("warning", marks=pytest.mark.long), "info"])
def test_the_day_of_two_clients(tmp_path: Path, level: str) -> None:
    bad, kept, other = tmp_path / "bad.txt", tmp_path / "kept", tmp_path / "other"
    bad.write_text("1 2\n3\n")
    other.mkdir()
    (other / "notes.txt").write_text("")
    settings = {"LOGGING__DBFS": level, "DBFS__SERVICE__WAITING_RUNS": "1", "DBFS__WRITE__FOLDERS": str(tmp_path)}
    with operated(tmp_path, **settings) as cluster:
        with program(cluster.address, "/jobs/train.py") as one, program(cluster.address, "/x/re(port\n).py") as two:
            one.wait_for_workers(2)
            street = dbfs.load("path:n=50", client=one, name="street")
            for error, edges, options in (
                (NameTakenError, "path:n=9", {"name": "street"}),
                (FormatError, str(bad), {}),
                (GraphTooLargeError, "path:n=3000000000", {}),
                (NoWorkersError, "path:n=9", {"name": "wide", "ranks": 9, "deadline": 0.5}),
            ):
                with pytest.raises(error):
                    dbfs.load(edges, client=two, **options)  # type: ignore[arg-type]
            for source in range(20):
                street.bfs(source)
            with dask.config.set({"dbfs.write.folders": [str(tmp_path)]}):
                street.save(kept)
                with pytest.raises(InvalidOptionError):
                    street.save(other)
            endless = dbfs.load(f"path:n={ENDLESS}", client=two, name="endless")
            first = Background(endless)
            waiting = Background(endless, waits=True)
            for _ in range(5):
                with pytest.raises(QueueFullError):
                    endless.bfs(0)
            eventually(lambda: cluster.log.read_text(), lambda text: "more runs refused" in text)
            for run in (waiting, first):
                run.run.cancel()
                run.join()
            endless.unload()
            street.unload()
        metrics = cluster.status("/metrics")[1]
    says_one, says_two = r"Client-\S+ \(says: \S+@\S+, train\.py\)", r"Client-\S+ \(says: \S+@\S+, re_port_n_\.py\)"
    graph, run = r"graph '{}' \(\w{{8}}\)".format, rf"run \w{{8}} \(1 traversal of 'endless' for {says_two}\)"
    day = [
        (
            GRAPHS,
            "INFO",
            rf"{graph('street')} loaded in .* by {says_one}: 50 vertices, 98 directed edges, .* on 2 ranks",
        ),
        (
            GRAPHS,
            "WARNING",
            rf"graph 'street' not loaded for {says_two}: NameTakenError: a graph named 'street' exists",
        ),
        (GRAPHS, "WARNING", rf"graph '{bad}' not loaded for {says_two}: FormatError: .*bad\.txt.*2"),
        (GRAPHS, "WARNING", rf"graph 'path:n=3000000000' not loaded for {says_two}: GraphTooLargeError: "),
        (
            GRAPHS,
            "WARNING",
            rf"graph 'wide' not loaded for {says_two}: NoWorkersError: 9 workers wanted, 2 found .*starting",
        ),
        (GRAPHS, "INFO", rf"{graph('street')} is being saved to {kept} by {says_one}"),
        (GRAPHS, "INFO", rf"{graph('street')} saved to {kept} by {says_one}: [\d.]+ [KM]iB in "),
        (GRAPHS, "INFO", rf"{graph('street')} is being saved to {other} by {says_one}"),
        (GRAPHS, "WARNING", rf"{graph('street')} not saved to {other} by {says_one}, after .*: InvalidOptionError: "),
        (GRAPHS, "INFO", rf"{graph('endless')} loaded in .* by {says_two}: "),
        (RUNS, "WARNING", rf"{run} refused: as many runs wait as dbfs\.service\.waiting-runs allows, 1$"),
        (RUNS, "WARNING", r"4 more runs refused in 10 s$"),
        (RUNS, "INFO", rf"{run}: a client requests to cancel it"),
        (RUNS, "INFO", rf"{run} cancelled after "),
        (RUNS, "INFO", rf"{run}: a client requests to cancel it"),
        (RUNS, "INFO", rf"{run} cancelled after "),
        (GRAPHS, "INFO", rf"{graph('endless')} unloaded after .* and 1 run: {says_two} unloaded it"),
        (GRAPHS, "INFO", rf"{graph('street')} unloaded after .* and 20 runs: {says_one} unloaded it"),
    ]
    lines = cluster.lines()
    expected = [entry for entry in day if level == "info" or entry[:2] != (RUNS, "INFO")]
    assert len(lines) == len(expected), "\n".join(lines)
    for line, (logger, of, pattern) in zip(lines, expected, strict=True):
        assert re.search(rf" - {re.escape(logger)} - {of} - {pattern}", line), (line, pattern)
    for line in (
        'dask_dbfs_loads_total{outcome="loaded"} 2.0',
        *(f'dask_dbfs_loads_total{{outcome="{name}Error"}} 1.0' for name in ("NameTaken", "Format", "GraphTooLarge")),
        'dask_dbfs_loads_total{outcome="NoWorkersError"} 1.0',
        'dask_dbfs_saves_total{outcome="saved"} 1.0',
        'dask_dbfs_saves_total{outcome="InvalidOptionError"} 1.0',
        "dask_dbfs_queue_refusals_total 5.0",
    ):
        assert line in metrics, metrics
    assert re.search(r"dask_dbfs_saved_bytes_total [1-9]", metrics)


def test_the_words_of_a_client_are_bounded_and_its_first_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_said", {})
    monkeypatch.setattr(log, "_CLIENTS_KEPT", 2)
    present = {"a", "c"}
    log.introduce("a", "ann) unloaded (", "host\x1b[2J", "x" * 1000, present.__contains__)
    log.introduce("a", "root", "host", "other.py", present.__contains__)
    said = log.shown("a")
    assert said.startswith("a (says: ann__unloaded__@host_x1b_2J, xxx")
    assert said.count("(") == 1
    assert len(said) < 200
    log.introduce("b", "bob", "host", "b.py", present.__contains__)
    log.introduce("c", "cid", "host", "c.py", present.__contains__)
    assert [log.shown(client) for client in "bc"] == ["b", "c (says: cid@host, c.py)"]


def test_what_a_client_that_leaves_has_begun_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Its loads and saves end; what others began goes on. A message of a stranger is ignored."""
    caplog.set_level(logging.INFO, GRAPHS)
    record: Any = SimpleNamespace(name="roads", graph_id="0123456789")
    graphs: Any = {"id": SimpleNamespace(record=record)}
    reserved = {"one": Reservation("a", (), "rivers"), "two": Reservation("b", (), None)}
    notes = ClientNotes(graphs, reserved, {"a", "b"}.__contains__)
    for client in ("a", "b", "stranger"):
        asyncio.run(notes.note_save(NoteSave("id", client, f"save of {client}", "/data")))
    caplog.clear()
    notes.remove_client("a")
    asyncio.run(notes.note_save(NoteSave("id", "a", "save of a", "/data", nbytes=1)))
    asyncio.run(notes.note_save(NoteSave("id", "b", "save of b", "/data", nbytes=2048)))
    asyncio.run(notes.end_load(EndLoad("two", "b", "lakes", "cancelled: KeyboardInterrupt")))
    asyncio.run(notes.end_load(EndLoad("three", "b", "hills", "Strange: not an error of dbfs")))
    expected = [
        "graph 'rivers' not loaded for a: ClientError: its client left",
        "graph 'roads' (01234567) not saved to /data by a, after .*: ClientError: its client left",
        "graph 'roads' (01234567) saved to /data by b: 2.00 KiB in .*",
        "graph 'lakes' not loaded for b: cancelled: KeyboardInterrupt",
        "graph 'hills' not loaded for b: Strange: not an error of dbfs",
    ]
    for line, words in zip(caplog.messages, expected, strict=True):
        assert re.fullmatch(re.escape(words).replace(r"\.\*", ".*"), line)
    assert notes.loads == {"loaded": 0, "ClientError": 1, "cancelled": 1, "other": 1}
    assert (notes.saves, notes.saved_bytes) == ({"saved": 1, "ClientError": 1}, 2048)
