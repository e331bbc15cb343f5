"""Messages between clients, the scheduler and workers: each is a frozen dataclass with exactly one handler."""

import asyncio
import dataclasses
import errno
import inspect
import os
import pickle
import re
from types import ModuleType
from typing import Any

import pytest

from dbfs.base.records import GraphIds, GraphRecord, RunProgress
from dbfs.errors import FormatError, InvalidOptionError, StaleRunError, VersionMismatchError
from dbfs.features.living.updates import Updates as SchedulerUpdates
from dbfs.service import messages as scheduler_messages
from dbfs.service.client_notes import ClientNotes
from dbfs.service.messages import (
    AddGraph,
    AwaitEnd,
    CancelRun,
    ChooseBackend,
    CountBuildTasks,
    DropLabels,
    EndLoad,
    Enqueue,
    EnqueueTasks,
    EnqueueUpdate,
    ExplainLoss,
    FreeAll,
    GetGraph,
    GetProgress,
    Introduce,
    ListGraphs,
    ListNotReady,
    ListRuns,
    ListWorkers,
    NoteSave,
    OpenGraph,
    PublishLabels,
    Reserve,
    SchedulerMessage,
    TellTurn,
    TryGang,
    UnloadGraph,
)
from dbfs.service.scheduler import SchedulerService
from dbfs.service.task_runs import TaskRuns
from dbfs.service.turns import Turns
from dbfs_workers.base.errors import ResourceError
from dbfs_workers.base.received import check, require
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.base.text import GraphName, printable
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.features.living import messages as worker_update_messages
from dbfs_workers.features.living.worker import Updates
from dbfs_workers.features.subgraphs import messages as subgraph_messages
from dbfs_workers.features.subgraphs.reads import EdgeReads
from dbfs_workers.ids.table import IdType
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.partition import PartitionInfo
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving import messages as worker_messages
from dbfs_workers.serving.answers import answer_error, read_answer
from dbfs_workers.serving.messages import (
    AbortRun,
    ConnectExchange,
    DisconnectExchange,
    DropRankLabels,
    ForgetClient,
    ForgetRun,
    GetGpu,
    GetHost,
    GetRankProgress,
    JoinGang,
    LeaveGang,
    OfferExchange,
    PublishRankLabels,
    ReachPeer,
    WorkerMessage,
)
from dbfs_workers.serving.plugin import WorkerService
from dbfs_workers.serving.reads import messages as read_messages
from dbfs_workers.serving.reads.messages import ReadMessage
from dbfs_workers.serving.reads.server import Reads
from dbfs_workers.serving.rpc import Message, PickledValue, handlers, unpack
from dbfs_workers.serving.turns import messages as turn_messages
from dbfs_workers.serving.turns.messages import BeginTurn, EndTurn, OpenDoor
from dbfs_workers.serving.turns.notes import EnterUpdate, NotedRun, NoteRuns
from dbfs_workers.serving.turns.requests import Run, Work
from dbfs_workers.serving.turns.worker import WorkerTurns

STRIPE = Stripe(100, 2)
WORK: PickledValue[Work] = PickledValue.of(Run(RunSpec.single(TraversalSpec("run", (3,), True, "cpu")), 0, ()))

KEY = ("partition", 1)
RECORD = GraphRecord(
    graph_id="id",
    name="roads",
    named=True,
    client="me",
    source="roads.txt",
    directed=False,
    stripe=STRIPE,
    addresses=("tcp://a:1", "tcp://a:2"),
    partition_keys=(("partition", 0), KEY),
    ids=GraphIds(0, IdType(("int64", "string"), ("a", "b")), (("ids", 0), ("ids", 1)), (0, 50), ((7, "x"),)),
    order_key=("order", 0),
    input_edge_keys=(),
    infos=(PartitionInfo(0, 3, 100, 0, 0, 3, 2, True),),
    backend="cpu",
    exchange="auto",
    layout=None,
    created=1.5,
    read_seconds=0.0,
    build_seconds=2.0,
)

EXAMPLES: list[Message[Any]] = [
    GetGpu(),
    GetHost(),
    ReachPeer("tcp://a:2"),
    JoinGang("id", 0, KEY, STRIPE, RECORD.addresses, "cpu", "host", None, (0, 1), 1),
    JoinGang("id", 1, KEY, STRIPE, RECORD.addresses, "cuda", "cuda_ipc", GridLayout(1, 2), (0, 0), 1, True),
    OfferExchange("id", 2),
    ConnectExchange("id", (PickledValue(b"0"), PickledValue(b"1")), 2),
    DisconnectExchange("id"),
    LeaveGang("id", 3),
    OpenDoor("id", b"token", 2),
    BeginTurn("id", 3, "me", 5, "run", WORK, b"token", ("tcp://a:2",), 2, 1.5, "order"),
    BeginTurn("id", 3, "me", 5, "run", None, b"", (), 2, 1.5, None),
    EndTurn("id", 3, Cause.LOST, "lost rank 1", 1),
    GetRankProgress("id", 4),
    AbortRun("id", 4, Cause.CANCELLED, "by request"),
    AbortRun("id", 4, Cause.LOST, "lost rank 1", 1),
    ForgetRun("run"),
    PublishRankLabels("id", "run", 0),
    DropRankLabels("id", (("run", 0),)),
    ForgetClient("id", "me"),
    Reserve("id", "me", RECORD.addresses, "roads", replace=True),
    EndLoad("id", "me", "roads", "FormatError: line 3"),
    Introduce("me", "ann", "host1", "train.py"),
    NoteSave("id", "me", "save", "/data/roads"),
    NoteSave("id", "me", "save", "/data/roads", 12),
    NoteSave("id", "me", "save", "/data/roads", error="OutputError: the disk is full"),
    ExplainLoss("id"),
    ChooseBackend(RECORD.addresses, "auto", "auto", 60.0),
    TryGang(RECORD.addresses, "auto", 60.0),
    AddGraph(RECORD, 60.0),
    OpenGraph("roads"),
    GetGraph("id"),
    ListGraphs(),
    ListWorkers(),
    ListNotReady(("id",)),
    UnloadGraph("id", "me"),
    FreeAll("me"),
    CountBuildTasks("token", 2),
    Enqueue("id", "me", "run", WORK, 1, 60.0, holds=True),
    EnqueueTasks("id", "me", "run", 2, 60.0, ""),
    EnqueueUpdate("id", "me", "run", WORK, 60.0, "insert-edges", "batch"),
    AwaitEnd("run", "me"),
    TellTurn("run", "me", RunProgress(2, 1, 5, "top-down", 3, 9, 0.5)),
    TellTurn("run", "me", PickledValue.of([])),
    ListRuns(),
    GetProgress("run"),
    CancelRun("run", "me"),
    PublishLabels("id", "me", "run", (0, 1), 60.0),
    DropLabels("id", (("run", 0),)),
    NoteRuns("id", 3, (NotedRun("run", 1.0, 0, ended=2.0), NotedRun("run", 3.0, 9, 7, 2))),
    EnterUpdate(
        "id", "me", "run", "batch", "insert-edges", 1.5, PickledValue.of(()), applied=True, settled=True, torn=""
    ),
]

# Rank 0 sends these to the scheduler, so that their classes are among those that workers import.
FROM_WORKERS: set[type[Message[Any]]] = {NoteRuns, EnterUpdate}


def messages_of(module: ModuleType, base: type[Message[Any]]) -> set[type[Message[Any]]]:
    """The messages that a module defines."""
    found = {value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, base)}
    return {value for value in found if value is not base and value.__module__ == module.__name__}


HALVES = [
    (messages_of(worker_messages, WorkerMessage), (WorkerService,)),
    (
        messages_of(scheduler_messages, SchedulerMessage) | FROM_WORKERS | {ListWorkers, ListNotReady},
        (SchedulerService, Turns, TaskRuns, ClientNotes, SchedulerUpdates),
    ),
]


def test_every_message_has_an_example() -> None:
    every = set.union(messages_of(turn_messages, WorkerMessage), *(messages for messages, _ in HALVES))
    assert {type(example) for example in EXAMPLES} == every
    assert len(every) == 45


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_frozen_and_survives_pickling(message: Message[Any]) -> None:
    copied = pickle.loads(pickle.dumps(message))
    assert copied == message
    assert type(copied) is type(message)
    assert hash(copied) == hash(message)
    # A tuple is still a tuple: Dask keys and places of labels are compared with others.
    assert repr(copied) == repr(message)
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.graph_id = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("messages", "services"), HALVES, ids=["workers", "scheduler"])
def test_every_message_has_one_handler_and_every_handler_one_message(
    messages: set[type[Message[Any]]], services: tuple[type[Any], ...]
) -> None:
    methods = dict(member for service in services for member in inspect.getmembers(service, inspect.isfunction))
    marked = {name: kind for name, method in methods.items() if (kind := getattr(method, "__dbfs_message__", None))}
    assert sorted(marked.values(), key=repr) == sorted(messages, key=repr)
    # The method is named as the message, and takes it, so that a reader finds one from the other.
    assert {f"dbfs_{name}" for name in marked} == {kind.operation for kind in marked.values()}
    for name, kind in marked.items():
        taken = inspect.signature(methods[name]).parameters["message"].annotation
        assert taken in (kind, kind.__name__)
    # Dask calls the other coroutines.
    coroutines = {name for name, method in methods.items() if inspect.iscoroutinefunction(method)}
    public = {name for name in coroutines & vars(services[0]).keys() if not name.startswith("_")}
    assert public - {"start", "before_close"} <= set(marked)
    found = [handlers(service.__new__(service)).keys() for service in services]
    assert set().union(*found) == {kind.operation for kind in marked.values()}


@pytest.mark.parametrize(
    ("module", "services"),
    [
        (read_messages, (Reads,)),
        (subgraph_messages, (EdgeReads,)),
        (worker_update_messages, (Updates,)),
        (turn_messages, (WorkerTurns,)),
    ],
    ids=["reads", "subgraphs", "updates", "turns"],
)
def test_every_message_of_a_room_has_one_handler(module: ModuleType, services: tuple[type[Any], ...]) -> None:
    methods = [method for service in services for _, method in inspect.getmembers(service, inspect.isfunction)]
    handled = [kind for method in methods if (kind := getattr(method, "__dbfs_message__", None))]
    messages = {kind for kind in messages_of(module, WorkerMessage) if kind is not ReadMessage}
    assert sorted(handled, key=repr) == sorted(messages, key=repr)


def test_an_operation_is_named_by_its_message() -> None:
    operations = [message.operation for message in {type(example) for example in EXAMPLES}]
    assert len(set(operations)) == len(operations)
    assert BeginTurn.operation == "dbfs_begin_turn"
    assert GetGpu.operation == "dbfs_get_gpu"


class Service:
    """Handlers that fail."""

    error: Exception = FileNotFoundError("gone")

    @GetRankProgress.handler
    async def get_rank_progress(self, message: GetRankProgress) -> None:
        raise StaleRunError(f"run {message.number} is over")

    @LeaveGang.handler
    async def leave_gang(self, message: LeaveGang) -> None:
        raise ZeroDivisionError(message.graph_id)

    @GetHost.handler
    async def get_host(self, message: GetHost) -> str:
        raise self.error


def answered(message: Message[Any]) -> Any:
    handler = handlers(Service())[message.operation]
    return unpack("tcp://a:1", message, asyncio.run(handler(pickle.dumps(message))))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "limit of open files (ulimit -n) is too low"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no memory left"),
        (MemoryError("no room"), "no memory left"),
    ],
)
def test_a_process_that_lacks_files_or_memory_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    monkeypatch.setattr(Service, "error", error)
    with pytest.raises(ResourceError, match=re.escape(words)) as raised:
        answered(GetHost())
    assert f"the process {os.getpid()} on" in str(raised.value)
    with pytest.raises(ResourceError, match=re.escape(words)):
        read_answer(answer_error(error))
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="get_host: FileNotFoundError"):
        answered(GetHost())


def test_errors_keep_their_type(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StaleRunError, match="run 4 is over"):
        answered(GetRankProgress("id", 4))
    assert not caplog.records
    with pytest.raises(RuntimeError, match="leave_gang: ZeroDivisionError: id"):
        answered(LeaveGang("id", 3))
    assert "the handler leave_gang failed" in caplog.text


JUNK = [
    (b"not a pickle", VersionMismatchError, "can't be unpickled"),
    (b"", VersionMismatchError, "can't be unpickled"),
    (None, VersionMismatchError, "can't be unpickled"),
    (pickle.dumps(None), VersionMismatchError, "lacks the fields of LeaveGang"),
    (pickle.dumps(GetGpu()), VersionMismatchError, "lacks the fields of LeaveGang"),
    (pickle.dumps(LeaveGang(5, 1)), InvalidOptionError, "dbfs_leave_gang: graph_id must be str, not 5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("junk", "error", "words"), JUNK, ids=[str(at) for at in range(len(JUNK))])
def test_junk_in_place_of_a_message_is_refused(
    junk: Any, error: type[Exception], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    handler = handlers(Service())[LeaveGang.operation]
    with pytest.raises(error, match=words):
        unpack("tcp://a:1", LeaveGang("id", 3), asyncio.run(handler(junk)))
    assert not caplog.records


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_field_of_a_message_is_checked(message: Message[Any]) -> None:
    kind = type(message)
    check(message, kind, "operation")
    for field in dataclasses.fields(message):  # type: ignore[arg-type]
        # Dask keys may be anything.
        if field.name != "partition_key":
            with pytest.raises(InvalidOptionError, match=f"operation: {field.name} must be "):
                check(dataclasses.replace(message, **{field.name: {}}), kind, "operation")  # type: ignore[type-var]
        # As if the sender's version had no such field.
        other = pickle.loads(pickle.dumps(message))
        del vars(other)[field.name]
        with pytest.raises(VersionMismatchError, match=f"lacks the fields of {kind.__name__}"):
            check(other, kind, "operation")


def test_fields_of_records_in_messages_are_checked() -> None:
    check(AddGraph(dataclasses.replace(RECORD, name="π ☃ <b>"), 60.0), AddGraph, "operation")
    wrong: list[dict[str, Any]] = [
        {"name": 5},
        {"name": "\x1b[31m"},
        {"source": "\udcff"},
        {"client": "x" * 256},
        {"stripe": None},
        {"infos": (None,)},
        {"created": "now"},
        {"named": 1},
        {"addresses": ["tcp://a:1"]},
        {"layout": "2d"},
        # Of a class that derives from the field's.
        {"layout": GridLayout("2", 2)},  # type: ignore[arg-type]
    ]
    for field in wrong:
        with pytest.raises(InvalidOptionError, match="operation: record must be GraphRecord"):
            check(AddGraph(dataclasses.replace(RECORD, **field), 60.0), AddGraph, "operation")


@pytest.mark.parametrize("name", [5, None, "", "   ", "a\nb", "\x1b[31m", "\udcff", "\u202e", "x" * 256, b"roads"])
def test_a_name_that_is_not_printable_is_refused(name: Any) -> None:
    with pytest.raises(InvalidOptionError, match="name must be printable text of 1 to 255 characters, not "):
        require(name, GraphName, "name")


def test_the_printable_form_of_a_text() -> None:
    assert printable("roads of Zürich [π] <b>") == "roads of Zürich [π] <b>"
    assert printable("\x1b]0;x\x07\n\udcff\u202e") == "\\x1b]0;x\\x07\\n\\udcff\\u202e"
    assert printable(5) == "5"
    assert printable("abcdefghij", 6) == "abc…ij"
    for long in ("x" * 10_000_000, "\x1b" * 10_000_000):
        once = printable(long)
        assert len(once) == 4096
        assert printable(once) == once


def test_messages_of_errors_are_printable() -> None:
    error = FormatError("roads\x1b[2J\udcff.txt:3: junk")
    assert str(error) == "roads\\x1b[2J\\udcff.txt:3: junk"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
