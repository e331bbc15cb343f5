"""Doors that strangers, or a lack of open files, would close. ``test_lines`` has the lines themselves."""

import contextlib
import errno
import logging
import re
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import distributed
import pytest

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.base.lines import door as doors
from dbfs_workers.base.lines import line as lines
from dbfs_workers.base.lines.door import GREETINGS, GREETINGS_OF_HOST, Door
from dbfs_workers.base.lines.line import Address, Line, LineClosedError, new_token
from dbfs_workers.search.exchange import across_hosts
from dbfs_workers.search.exchange.across_hosts import CONNECT_SECONDS, EnvoyExchange
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.exchange.shared_memory import Offer
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.exchanges import plain_door

# A process whose door is the last file that it may open, until it is told to close others.
FULL = """
import logging, os, resource, sys, threading
from dbfs_workers.base.lines.door import Door

logging.basicConfig(stream=sys.stdout, format="%(message)s")
# Imports whatever a door needs. Its thread ends before the files are counted, since it may hold one until then.
Door("127.0.0.1", None).close()
for thread in threading.enumerate():
    if thread.name == "dbfs-door":
        thread.join()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    os.close(held.pop())
door = Door("127.0.0.1", None)
door.admit(bytes.fromhex(sys.argv[1]), lambda line: line.send(line.receive(None), 5.0))
sys.stdin.readline()
for descriptor in held:
    os.close(descriptor)
sys.stdin.readline()
"""


def test_a_door_outlives_a_lack_of_open_files() -> None:
    token = new_token()
    with subprocess.Popen(
        [sys.executable, "-c", FULL, token.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"127.0.0.1:(\d+) can't take lines, and tries again until it can: .*open files", said)
        assert found
        address = ("127.0.0.1", int(found.group(1)))
        with ThreadPoolExecutor() as pool:
            opening = pool.submit(Line.open, address, token, None, 30.0)
            process.stdin.write("close them\n")
            opening.result().close()
        # The door accepts this line after it has logged the one before.
        with contextlib.closing(Line.open(address, token, None, 30.0)) as line:
            line.send(b"here", 5.0)
            assert line.receive(None) == b"here"
        said, _ = process.communicate("end\n")
        assert said.count("\n") == said.count("takes lines again") == 1


class Listener:
    """A listener that fails before it accepts."""

    def __init__(self, listener: socket.socket, errors: list[Exception]) -> None:
        self.listener, self.errors = listener, errors

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.errors:
            raise self.errors.pop(0)
        return self.listener.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self.listener, name)


def test_a_door_tries_again_whatever_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    errors = [OSError(errno.ENFILE, "full"), OSError(errno.ENOMEM, "no memory"), RuntimeError("broken")]
    listen = doors._listen
    monkeypatch.setattr(doors, "_listen", lambda host, ports: Listener(listen(host, ports), errors))
    caplog.set_level(logging.WARNING)
    token = new_token()
    with contextlib.closing(Door("127.0.0.1", None)) as door:
        door.admit(token, lambda line: None)
        for _ in range(2):
            # The door accepts the second line after it has logged the first.
            Line.open(door.address, token, None, 30.0).close()
    assert not errors
    # One line for all failures, and one for their end.
    found = [record.getMessage().partition(str(door.address[1]))[2] for record in caplog.records]
    assert found == [" can't take lines, and tries again until it can: [Errno 23] full", " takes lines again"]


def test_a_connection_for_which_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = threading.Thread.start, list[str]()

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == "dbfs-line" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    token = new_token()
    with contextlib.closing(Door("127.0.0.1", None)) as door:
        door.admit(token, lambda line: None)
        with socket.create_connection(door.address, 5) as connection:
            assert connection.recv(1) == b""
        Line.open(door.address, token, None, 30.0).close()


Patient = tuple[Door, bytes, ssl.SSLContext | None]


@pytest.fixture(params=["tcp", "tls"])
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patient]:
    """A door that waits for tokens longer than the test takes, a token, and the TLS of a client."""
    monkeypatch.setattr(doors, "_GREETING_SECONDS", 300.0)
    security = distributed.Security.temporary() if request.param == "tls" else distributed.Security()
    token = new_token()
    context = security.get_listen_args("worker").get("ssl_context")
    with contextlib.closing(Door("127.0.0.1", context)) as door:
        door.admit(token, lambda line: None)
        yield door, token, security.get_connection_args("worker").get("ssl_context")


def silent(door: Door, host: int, count: int) -> list[socket.socket]:
    """Connect from an address of this machine, and say nothing."""
    return [socket.create_connection(door.address, 5, (f"127.0.0.{host}", 0)) for _ in range(count)]


def await_closed(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""


def still_open(connections: list[socket.socket]) -> bool:
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    return not poll.poll(0)


def test_strangers_that_fill_a_door_give_way(patient: Patient) -> None:
    door, token, context = patient
    hosts = GREETINGS // GREETINGS_OF_HOST
    strangers = [one for host in range(hosts) for one in silent(door, 2 + host, GREETINGS_OF_HOST)]
    for place in range(3):
        # From 127.0.0.1, where no stranger is.
        Line.open(door.address, token, context, 30.0).close()
        await_closed(strangers[place])
        assert still_open(strangers[place + 1 :])
        strangers += silent(door, 200 + place, 1)
    for stranger in strangers:
        stranger.close()


def test_strangers_of_one_address_push_out_their_own(patient: Patient) -> None:
    door, token, context = patient
    others, strangers = silent(door, 2, 3), silent(door, 3, GREETINGS_OF_HOST)
    for place in range(5):
        strangers += silent(door, 3, 1)
        await_closed(strangers[place])
    Line.open(door.address, token, context, 30.0).close()
    assert still_open(others + strangers[5:])
    for stranger in others + strangers:
        stranger.close()


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: object) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now


def test_opening_a_line_keeps_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, lines)
    monkeypatch.setattr(doors, "_GREETING_SECONDS", 300.0)

    class Slow(ssl.SSLContext):
        """TLS that takes all of the time."""

        def wrap_socket(self, sock: socket.socket, *_: object, **__: object) -> socket.socket:  # type: ignore[override]
            clock.now += 5.0
            return sock

    token = new_token()
    with contextlib.closing(Door("127.0.0.1", None)) as door:
        door.admit(token, lambda line: None)
        with pytest.raises(ExchangeUnavailableError, match=r"no line to 127.0.0.1:\d+: no answer in time"):
            Line.open(door.address, token, Slow(ssl.PROTOCOL_TLS_CLIENT), 5.0)
        Line.open(door.address, token, None, 5.0).close()


def test_connecting_to_several_hosts_keeps_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    own = plain_door()
    exchange = EnvoyExchange(Stripe(10, 4), 3, "gang", Hosts((0, 1, 2, 3)), own)
    clock, given, token = Clock(monkeypatch, across_hosts), list[float](), new_token()

    def slowly(address: Address, shown: bytes, timeout: float) -> Line:
        given.append(timeout)
        clock.now += 2.0
        return Line.open(address, shown, None, 30.0)

    def hold(line: Line) -> None:
        with contextlib.suppress(LineClosedError):
            line.receive(None)

    monkeypatch.setattr(own, "opener", lambda: slowly)
    with contextlib.closing(Door("127.0.0.1", None)) as door, contextlib.closing(own), contextlib.closing(exchange):
        door.admit(token, hold)
        exchange.connect([*[Offer(None, door.address, token)] * 3, exchange.offer()])
    assert given == [CONNECT_SECONDS, CONNECT_SECONDS - 2.0, CONNECT_SECONDS - 4.0]


def test_an_envoy_that_leaves_before_its_peers_connect_admits_no_lines() -> None:
    own = plain_door()
    with contextlib.closing(own):
        exchange = EnvoyExchange(Stripe(10, 2), 0, "gang", Hosts((0, 1)), own)
        offer = exchange.offer()
        # Offered anew, as after a failed run: what was offered first is no longer valid.
        again = exchange.offer()
        assert offer.door is not None
        assert (again.memory, again.door) == (offer.memory, offer.door)
        with pytest.raises(LineClosedError, match="the token is not valid there"):
            Line.open(offer.door, offer.token, None, 30.0)
        exchange.close()
        with pytest.raises(LineClosedError, match="the token is not valid there"):
            Line.open(offer.door, again.token, None, 30.0)
