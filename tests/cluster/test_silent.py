"""A worker, or the scheduler, is stopped: what each call says while it waits, and which calls wait at all.

The matrix has the deadlines and the silence that a user has. Its calls beside one stopped process are made at once,
each on a graph of its own, and all end when the process goes on.
"""

import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs import config
from dbfs.assembly import Graph
from dbfs.base.records import RunProgress
from dbfs.cluster import lookout
from dbfs.errors import DbfsError, DeadlineExceededError
from tests.support.stalls import CALLS, RANKS, Processes, check, made_anew, processes, stopped
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.alone

# Seconds in which a call beside a silent process ends, or says whom it waits for.
TOLD = 15.0
# Calls that need the scheduler only.
OF_SCHEDULER = ("version", "open", "graphs", "runs", "unload")
VICTIM = f"rank {RANKS - 1}"


class Heard(logging.Handler):
    """Keeps, by the name of the thread that waits, what the client's log says."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.words.setdefault(str(record.threadName), []).append(record.getMessage())

    def said(self, thread: str, words: str) -> bool:
        """Return whether the log has a line with those words of a thread."""
        return any(words in line for line in self.words.get(thread, ()))


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    lookout.logger.addHandler(handler)
    yield handler
    lookout.logger.removeHandler(handler)


class Waiting:
    """A call in a thread of its own, which has the call's name."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self.name = name
        self.value: object = None
        self.error: BaseException | None = None
        self._call = call
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error

    @property
    def over(self) -> bool:
        return not self.thread.is_alive()

    def join(self) -> None:
        self.thread.join(PATIENCE)
        assert self.over, f"{self.name} hangs"


def told(calls: list[Waiting], heard: Heard, whom: str) -> list[str]:
    """Wait until each call is over, or has said for whom it waits; return what is missing after ``TOLD`` seconds."""

    def missing() -> list[str]:
        return [call.name for call in calls if not call.over and not heard.said(call.name, whom)]

    end = threading.Event()
    timer = threading.Timer(TOLD, end.set)
    timer.start()
    while missing() and not end.wait(0.05):
        pass
    timer.cancel()
    return missing()


@pytest.fixture(scope="module")
def quick() -> Iterator[Processes]:
    """Processes among which a worker is late sooner than a user has it, and yet no busy one is."""
    with dask.config.set({"dbfs.silence": "4s"}), processes(DASK_DBFS__SILENCE="4s") as there:
        yield there


@pytest.mark.full
def test_a_silent_worker_is_named_and_holds_up_its_own_graphs_only(quick: Processes, heard: Heard) -> None:
    graph, beside = made_anew(quick), made_anew(quick, RANKS - 1)
    victim = graph.gang.addresses[-1]
    noted: queue.Queue[RunProgress] = queue.Queue()
    with stopped(quick.pids[VICTIM]):
        run = Waiting("run", lambda: graph.bfs(0, predecessors=True, progress=noted.put))
        eventually(lambda: heard.said("run", f"waits for worker {victim}, silent for "))
        eventually(noted.get, lambda progress: victim in progress.waits_for)
        listed = eventually(lambda: dbfs.runs(client=quick.other))
        assert victim in listed[0].status.waits_for
        assert victim in str(dbfs.graphs(client=quick.client)[0].not_ready[0])
        # These have the time of a test's patience, and need the stopped worker for nothing.
        with distributed.Client(quick.address, set_as_default=False) as new:
            assert dbfs.open(beside.name, client=new, deadline=PATIENCE).bfs(0, deadline=PATIENCE).reached == graph.n
            with dbfs.load("path:n=9", client=new, deadline=PATIENCE) as small:
                assert victim not in small.gang.addresses
                assert small.bfs(0, deadline=PATIENCE).depth == 8
        assert not run.over
        with pytest.raises(DeadlineExceededError, match=rf"; waits for worker {victim}, silent for .* s$"):
            dbfs.load("path:n=9", client=quick.other, ranks=RANKS, deadline=9)
    run.join()
    assert isinstance(run.value, dbfs.BFSResult)
    run.value.validate()
    graph.unload()
    beside.unload()


@pytest.mark.full
def test_a_silent_scheduler_is_named(quick: Processes, heard: Heard) -> None:
    with stopped(quick.pids["scheduler"]):
        listing = Waiting("listing", lambda: dbfs.graphs(client=quick.client))
        eventually(lambda: heard.said("listing", f"waits for the scheduler at {quick.address}, silent for "))
        with pytest.raises(DeadlineExceededError, match="waits for the scheduler at"):
            dbfs.open("none", client=quick.client, deadline=9)
    listing.join()
    assert listing.error is None


@pytest.fixture(scope="module")
def usual() -> Iterator[Processes]:
    """Processes with the settings of a user."""
    with processes() as there, dask.config.set({"dbfs.write.folders": ["/"]}):
        yield there


def begin(graphs: dict[str, Graph]) -> Callable[[], list[Waiting]]:
    """Prepare the calls of the matrix, each on its graph; return what begins them all."""
    deadline = config.seconds("deadline")
    calls: dict[str, Any] = {name: CALLS[name](graph) for name, graph in graphs.items()}

    def call(name: str) -> Callable[[], object]:
        return lambda: calls[name](graphs[name], deadline)

    return lambda: [Waiting(name, call(name)) for name in calls]


@pytest.mark.long
@pytest.mark.parametrize("process", [VICTIM, "rank 0", "scheduler"])
def test_every_call_beside_a_stopped_process_says_so(usual: Processes, heard: Heard, process: str) -> None:
    graphs = {name: made_anew(usual) for name in CALLS}
    start = begin(graphs)
    rank = 0 if process == "rank 0" else -1
    whom = usual.address if process == "scheduler" else next(iter(graphs.values())).gang.addresses[rank]
    with stopped(usual.pids[process]):
        calls = start()
        assert told(calls, heard, whom) == []
        if process != "scheduler":
            waiting = [call.name for call in calls if call.name in OF_SCHEDULER and not call.over]
            assert waiting == []
    for call in calls:
        call.join()
        assert call.error is None or isinstance(call.error, DbfsError), (call.name, call.error)
        check(usual, graphs[call.name], call.name).unload()


@pytest.mark.long
def test_no_call_waits_for_a_stopped_worker_that_it_does_not_need(usual: Processes, heard: Heard) -> None:
    graphs = {name: made_anew(usual, RANKS - 1) for name in CALLS}
    start, needing = begin(graphs), made_anew(usual)
    with stopped(usual.pids[VICTIM]):
        stuck = Waiting("stuck", lambda: needing.bfs(0))
        assert told([stuck], heard, needing.gang.addresses[-1]) == []
        calls = start()
        for call in calls:
            call.join()
            assert call.error is None, (call.name, call.error)
        assert not stuck.over
        assert heard.words.keys() == {"stuck"}
    stuck.join()
    assert stuck.error is None
    for name, graph in graphs.items():
        check(usual, graph, name).unload()


COMMANDS = {
    "graphs": ["graphs"],
    "runs": ["runs"],
    "load": ["load", "path:n=50", "--name", "new", "--ranks", str(RANKS)],
    "run": ["run", "NAME", "--loaded", "--source", "0"],
    "save": ["save", "NAME", "FOLDER"],
    "doctor": ["doctor"],
    "unload": ["unload", "NAME"],
}
# Commands that wait for a rank.
WAITING = ("load", "run", "save")


@pytest.mark.long
@pytest.mark.parametrize("process", [VICTIM, "scheduler"])
def test_every_command_beside_a_stopped_process_says_so(usual: Processes, tmp_path: Any, process: str) -> None:
    graphs = {name: made_anew(usual) for name in COMMANDS}
    victim = next(iter(graphs.values())).gang.addresses[-1]
    with ExitStack() as ends:
        ends.enter_context(stopped(usual.pids[process]))
        started, settings = {}, os.environ | {"DASK_DBFS__WRITE__FOLDERS": "['/']"}
        for name, arguments in COMMANDS.items():
            words = {"NAME": graphs[name].name, "FOLDER": str(tmp_path / name)}
            command = [sys.executable, "-m", "dbfs", *(words.get(word, word) for word in arguments)]
            command += ["--scheduler", usual.address]
            started[name] = subprocess.Popen(
                command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=settings
            )
            ends.callback(started[name].kill)
        for name, command_process in started.items():
            if process == "scheduler":
                # No command gets beyond the connection.
                _, said = command_process.communicate(timeout=2 * PATIENCE)
                assert f"no scheduler answered at {usual.address}" in said
            elif name in WAITING:
                assert command_process.stderr is not None
                lines = list[str]()
                for line in command_process.stderr:
                    lines.append(line)
                    if "waits for worker" in line:
                        break
                assert victim in lines[-1], (name, lines)
            else:
                assert command_process.wait(PATIENCE) == 0, command_process.stderr
    for graph in graphs.values():
        graph.unload()
