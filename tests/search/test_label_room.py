"""The room for labels: results that clients hold never fill a worker's memory, and the refusal says what frees room."""

from types import SimpleNamespace
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.cluster.gang import joined_workers
from dbfs.errors import NoRoomForLabelsError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.search.members import label_room
from dbfs_workers.search.members.label_room import LabelRoom
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.labels import RankLabels, label_bytes
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.gang import repeated
from tests.support.runs import set_room

STRIPE = Stripe(1000, 2)
RESULT = label_bytes(STRIPE, predecessors=True)


@pytest.mark.parametrize(
    ("fractions", "share"),
    [((0.7, 0.8), 0.7), ((False, 0.8), 0.75), ((0.78, 0.8), 0.75), ((False, False), 0.9), ((0.95, 0.95), 0.9)],
)
def test_labels_stay_below_what_makes_dask_spill_or_pause(fractions: tuple[Any, Any], share: float) -> None:
    manager = SimpleNamespace(memory_limit=100, memory_spill_fraction=fractions[0], memory_pause_fraction=fractions[1])
    worker: Any = SimpleNamespace(memory_manager=manager, address="tcp://a:1")
    assert LabelRoom.of(worker, 0.9) == LabelRoom(100, share)


@pytest.mark.parametrize(("limit", "address"), [(None, "tcp://a:1"), (10, "inproc://a/1")])
def test_without_a_limit_of_its_own_the_machine_is_the_limit(limit: int | None, address: str) -> None:
    manager = SimpleNamespace(memory_limit=limit, memory_spill_fraction=0.7, memory_pause_fraction=0.8)
    worker: Any = SimpleNamespace(memory_manager=manager, address=address)
    room = LabelRoom.of(worker, 0.9)
    assert room == LabelRoom(None, 0.9)
    assert 0 < room.free_bytes() < 2**50


def require(free: int, kept: int, traversals: int, pooled: int = 0) -> None:
    held = [RankLabels.unreached(np, STRIPE, predecessors=True) for _ in range(kept)]
    specs = RunSpec(TraversalSpec("7", (), True, "cpu"), ((0,),) * traversals)
    label_room.require(lambda: free, lambda: pooled, held, STRIPE, specs, 0, where="run 7, rank 1")


def test_two_results_are_never_refused() -> None:
    assert RankLabels.unreached(np, STRIPE, predecessors=True).nbytes == RESULT
    require(-1, 0, 2)
    require(-1, 1, 1)
    require(5 * RESULT, 9, 5)
    words = f"run 7, rank 1: the labels of 1 traversal need {RESULT:,} bytes, 5 bytes are free .* keeps {2 * RESULT:,} "
    with pytest.raises(NoRoomForLabelsError, match=words + "bytes of 2 results.*release.*publish.*unload.*bfs_stream"):
        require(5, 2, 1)
    with pytest.raises(NoRoomForLabelsError, match="the labels of 3 traversals need .*, 0 bytes are free"):
        require(-1, 0, 3)


def test_labels_that_fit_into_the_memory_of_released_ones_are_not_refused() -> None:
    require(-1, 9, 5, pooled=5 * RESULT)
    with pytest.raises(NoRoomForLabelsError):
        require(5 * RESULT - 1, 9, 5, pooled=5 * RESULT - 1)


def test_later_parts_of_a_run_are_not_checked_again() -> None:
    asked: list[int] = []

    class Room(LabelRoom):
        def free_bytes(self) -> int:
            asked.append(1)
            return 10 * RESULT

    exchange: Any = SimpleNamespace()
    member = Member(1, "key", LoopRunner(exchange))
    member.room = Room()
    spec = TraversalSpec("run", (0,), predecessors=True, backend="cpu")
    for traversals, following, checks in ((2, 5, 1), (3, 2, 1), (2, 0, 1), (3, 0, 2)):
        member._following = following
        member.require_room(STRIPE, repeated(spec, traversals))
        assert len(asked) == checks
    member._following = 11
    with pytest.raises(NoRoomForLabelsError, match="the labels of 12 traversals"):
        member.require_room(STRIPE, repeated(spec, 1))
    # The refused run was not counted. The room was read again before the refusal, after freed memory had returned.
    member._following = 0
    member.require_room(STRIPE, repeated(spec, 3))
    assert len(asked) == 5


@pytest.mark.parametrize("exchange", ["shared_memory", pytest.param("tcp", marks=pytest.mark.full)])
def test_one_rank_without_room_refuses_for_all(client: distributed.Client, exchange: str) -> None:
    with (
        dask.config.set({"dbfs.exchange": exchange}),
        dbfs.load("path:n=40", client=client, ranks=3) as graph,
        dbfs.load("path:n=30", client=client) as other,
    ):
        client.run(set_room, graph.record.graph_id, 1, workers=[graph.gang.addresses[1]])
        held = [graph.bfs(0) for _ in range(4)]
        for _ in range(2):
            with pytest.raises(NoRoomForLabelsError, match=r"run \w+, rank 1: .*keeps [\d,]+ bytes of 4 results"):
                graph.bfs(0)
        with pytest.raises(NoRoomForLabelsError, match="the labels of 9 traversals"):
            graph.bfs_many(range(9))
        with pytest.raises(NoRoomForLabelsError, match=r"run \w+, rank 1: .*of 4 results"):
            graph.bfs(0, engine="taskgraph")
        assert other.bfs(0).depth == 29
        # The results that are held are whole, and to release one makes room.
        assert held[0].distances().tolist() == list(range(40))
        held.pop(1).release()
        assert graph.bfs(0, validate=True).depth == 39


@pytest.mark.full
@pytest.mark.parametrize("many", [True, False])
def test_results_that_a_client_holds_do_not_kill_the_workers(many: bool) -> None:
    with (
        dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None, memory_limit="512MiB") as client,
        distributed.Client(client.scheduler.address, set_as_default=False) as other,
    ):
        addresses = set(joined_workers(client))
        bystander = dbfs.load("path:n=20", client=other, name="bystander")
        graph, held = dbfs.load("star:n=1048576", client=client), []
        with pytest.raises(NoRoomForLabelsError):
            if many:
                graph.bfs_many([0] * 3000)
            for _ in range(200):
                held.append(graph.bfs(0, predecessors=True))
        assert bystander.bfs(0).depth == 19
        # Dask spills what is published.
        for result in held:
            result.publish()
        assert graph.bfs(0, validate=True).reached == 2**20
        assert all(result.distances().max() == 1 for result in held[:3])
        assert set(joined_workers(client)) == addresses
