"""The exchange between hosts in real processes: crossing, and every way a run can end early.

``test_exchange`` has the exchange on one host.
"""

import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dbfs_workers.base.errors import (
    DeadlineExceededError,
    ExchangeUnavailableError,
    RunAbortedError,
    RunCancelledError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.base.lines.line import new_token
from dbfs_workers.search.exchange import hosts
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.partition import Partition
from tests.support import oracle
from tests.support.gang import PATIENCE, Gang, Told, partitions, spec, started
from tests.support.graphs import Arrays, random

pytestmark = pytest.mark.alone

# Ranks 0 and 1 are the envoys. The ranks of a host do not follow each other.
MIXED = (0, 1, 0, 1)


@pytest.fixture(scope="module")
def four() -> Iterator[Gang]:
    with started(4, hosts=MIXED) as gang:
        yield gang


def path(p: int, length: int = 300) -> list[Partition]:
    ends = np.arange(length)
    return partitions(length + 1, ends, ends + 1, p, directed=False)


def assert_right(gang: Gang, arrays: Arrays, source: int) -> None:
    """Load a graph, traverse it in every direction, and compare with SciPy."""
    n, src, dst = arrays
    parts = partitions(n, src, dst, gang.p, directed=False)
    matrix = oracle.adjacency(n, src, dst, directed=False)
    expected = oracle.distances(matrix, [source])
    gang.load(parts)
    directions = ("auto", "top-down", "bottom-up")
    for answer in gang.run(*(spec(source, predecessors=True, direction=direction) for direction in directions)):
        np.testing.assert_array_equal(answer.distances(parts[0].stripe), expected)
        oracle.assert_valid_parents(matrix, expected, answer.parents(parts[0].stripe), [source])
    (answer,) = gang.run(spec(source))
    np.testing.assert_array_equal(answer.distances(parts[0].stripe), expected)


def assert_serves(gang: Gang) -> None:
    """The streams are made anew, and then the gang traverses."""
    gang.connect()
    (answer,) = gang.run(spec(0))
    assert answer.total(lambda run: run.reached) == 301


@pytest.mark.full
def test_ranks_on_two_hosts_have_one_result(four: Gang) -> None:
    assert_right(four, random(500, 3000, 1), 7)
    assert_right(four, (301, np.arange(300), np.arange(1, 301)), 3)


@pytest.mark.full
@pytest.mark.parametrize("hosts", [(0, 1), (0, 1, 2), (0, 0, 1), (0, 1, 1, 0), (0, 1, 2, 3), (0, 0, 0, 1)])
def test_other_hosts_have_the_same_result(hosts: tuple[int, ...]) -> None:
    with started(len(hosts), hosts=hosts) as gang:
        assert_right(gang, random(500, 3000, 1), 7)


@pytest.mark.parametrize("hosts", [(0, 1), pytest.param((0, 0, 1), marks=pytest.mark.full)])
def test_bins_that_pass_through_the_host_cross_hosts(hosts: tuple[int, ...]) -> None:
    """As on GPUs, whose arrays are NumPy's here."""
    with started(len(hosts), hosts=hosts, staged=True) as gang:
        assert_right(gang, random(500, 3000, 1), 7)


@pytest.mark.full
def test_frames_larger_than_the_buffers_of_a_connection(four: Gang) -> None:
    n, src, dst = random(1_000_000, 2_000_000, 2)
    parts = partitions(n, src, dst, 4, directed=False)
    four.load(parts)
    (answer,) = four.run(spec(7, predecessors=True, direction="top-down"))
    expected = oracle.distances(oracle.adjacency(n, src, dst, directed=False), [7])
    np.testing.assert_array_equal(answer.distances(parts[0].stripe), expected)
    parents, reached = answer.parents(parts[0].stripe), expected > 0
    np.testing.assert_array_equal(expected[parents[reached]], expected[reached] - 1)


@pytest.mark.full
def test_python_goes_on_with_frames_that_the_kernel_leaves(four: Gang) -> None:
    """The kernel sends a part of a frame, or none of it; the results are the same."""
    n, src, dst = random(20_000, 60_000, 3)
    parts = partitions(n, src, dst, 4, directed=False)
    expected = oracle.distances(oracle.adjacency(n, src, dst, directed=False), [7])
    four.load(parts)
    for hindrance in (("narrow", 4096), ("leave_frames_to_python",)):
        for done in four.everywhere(*hindrance, ranks=(0, 1)):
            done.result()
        (answer,) = four.run(spec(7, predecessors=True, direction="top-down"))
        np.testing.assert_array_equal(answer.distances(parts[0].stripe), expected)


def test_counts_are_joined_over_hosts(four: Gang) -> None:
    four.load(path(4))
    number = four.next_number()
    for sums in [call.result() for call in four.everywhere("cross", number, 3, PATIENCE, "run")]:
        assert sums == [Told(4, 6, 4 * i, 3, 0) for i in range(3)]


def test_an_end_of_a_run_reaches_the_other_hosts(four: Gang) -> None:
    four.load(path(4))
    number = four.next_number()
    waiting = four.everywhere("cross", number, 1, 10.0, "run", ranks=[0, 1, 2])
    time.sleep(0.1)
    four.call(3, "abort", number, Cause.CANCELLED, "its client is gone").result()
    for answered in waiting:
        with pytest.raises(RunCancelledError, match="level 0, test: cancelled: its client is gone"):
            answered.result()
    assert_serves(four)
    # A rank without streams fails.
    number = four.next_number()
    waiting = four.everywhere("run", [spec(0)], number, 10.0, ranks=[0, 1, 3])
    with pytest.raises(AttributeError, match="queues"):
        four.call(2, "fail", number).result()
    for answered in waiting:
        with pytest.raises(RunAbortedError, match="level 0, start: rank 2 failed first: AttributeError: .*queues"):
            answered.result()


def test_a_cancellation_that_comes_too_late_is_skipped(four: Gang) -> None:
    four.load(path(4))
    four.run(spec(0))
    for rank in (0, 1, 2, 3):
        four.call(rank, "abort", four.number, Cause.CANCELLED, "too late").result()
    (answer,) = four.run(spec(0))
    assert answer.total(lambda run: run.reached) == 301


@pytest.mark.full
def test_a_rank_that_does_not_come_is_named_at_the_deadline(four: Gang) -> None:
    four.load(path(4))
    for absent in (1, 2, 3):
        number = four.next_number()
        waiting = four.everywhere("cross", number, 1, 0.5, "run", ranks=[rank for rank in range(4) if rank != absent])
        for answered in waiting:
            with pytest.raises(DeadlineExceededError, match=r"level 0, test.*waiting for rank \d"):
                answered.result()
        four.connect()
    assert_serves(four)


@pytest.mark.full
def test_a_host_in_another_run_is_refused(four: Gang) -> None:
    four.load(path(4))
    number = four.next_number()
    calls = [four.call(rank, "cross", number, 1, 2.0, f"run {host}") for rank, host in enumerate(MIXED)]
    for answered in calls:
        with pytest.raises(StaleRunError, match="is in another run"):
            answered.result()
    assert_serves(four)
    number = four.next_number()
    calls = [four.call(rank, "cross", number + host, 1, 2.0, "run") for rank, host in enumerate(MIXED)]
    for answered in calls:
        with pytest.raises((StaleRunError, DeadlineExceededError), match="level 0, test"):
            answered.result()
    four.number += 1
    assert_serves(four)


def test_a_connection_that_is_cut_in_a_level_ends_the_run(four: Gang) -> None:
    four.load(path(4))
    number = four.next_number()
    running = four.everywhere("run", [spec(0)] * 100_000, number, PATIENCE)
    time.sleep(0.2)
    four.call(0, "break_streams", 1).result()
    for answered in running:
        with pytest.raises(WorkerLostError, match=r"run run, rank \d, level \d+, .*: lost rank [01]; load"):
            answered.result()
    assert_serves(four)


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_a_killed_rank_is_noticed_at_once_on_every_host(victim: int) -> None:
    with started(4, hosts=MIXED) as gang:
        gang.load(path(4, 5000))
        calls = dict(enumerate(gang.everywhere("run", [spec(0)] * 100_000, 1, PATIENCE)))
        time.sleep(0.3)
        gang.kill(victim)
        killed = time.monotonic()
        for rank in {0, 1, 2, 3} - {victim}:
            with pytest.raises(WorkerLostError, match=f"run run, rank {rank}, level .* lost rank {victim}; load"):
                calls[rank].result()
        assert time.monotonic() - killed < PATIENCE / 2


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 2])
def test_a_stopped_rank_ends_the_run_at_the_deadline(victim: int) -> None:
    with started(4, hosts=MIXED) as gang:
        gang.load(path(4))
        calls = dict(enumerate(gang.everywhere("run", [spec(0)] * 100_000, gang.next_number(), 2.0)))
        time.sleep(0.3)
        os.kill(gang.processes[victim].pid, signal.SIGSTOP)
        for rank in {0, 1, 2, 3} - {victim}:
            with pytest.raises(DeadlineExceededError, match=f"rank {rank}, level .*waiting for rank"):
                calls[rank].result()
        os.kill(gang.processes[victim].pid, signal.SIGCONT)
        with pytest.raises(DeadlineExceededError):
            calls[victim].result()
        assert_serves(gang)


def test_strangers_get_no_stream(four: Gang) -> None:
    four.load(path(4))
    offers = [call.result() for call in four.everywhere("offer")]
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"dbfs-line-1\n" + new_token(), b""):
        with socket.create_connection(offers[0].door, 5) as stranger:
            stranger.settimeout(5)
            stranger.sendall(greeting.ljust(44, b"\0") if greeting else b"")
            assert not greeting or stranger.recv(1) == b""
    with pytest.raises(ExchangeUnavailableError, match="rank 1, to rank 0: .* the token is not valid there"):
        four.call(1, "connect", [replace(offer, token=new_token()) for offer in offers]).result()
    assert_serves(four)


@pytest.mark.parametrize(("space", "shown"), [("kernel-7", "kernel-7"), (None, f"{socket.gethostname()}/unknown")])
def test_processes_of_one_host_have_one_kernel_and_one_user(
    space: str | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "process_space", lambda: space)
    assert hosts.identity("name") == f"name/{shown}/{os.geteuid()}"


def test_hosts_of_ranks() -> None:
    three = Hosts.by_identity(["b", "a", "b", "c"])
    assert three == Hosts((0, 1, 0, 2))
    assert (three.count, three.envoys, three.ranks(0)) == (3, (0, 1, 3), (0, 2))
    assert three.carriers(2) == (0, 0, 2, 0)
    assert three.carriers(3) == (3, 3, 3, 3)
    assert (Hosts.one(3).count, Hosts.apart(3).envoys) == (1, (0, 1, 2))
