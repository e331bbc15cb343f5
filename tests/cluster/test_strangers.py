"""Strangers at the ports of a cluster: bytes that are no message, and messages that are none of dbfs's."""

import asyncio
import pickle
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import dask
import distributed
import pytest
from distributed.core import connect, send_recv

import dbfs
from dbfs.cluster.gang import joined_workers
from tests.support.standin import pretend_to_have_a_gpu

pytestmark = [pytest.mark.full, pytest.mark.alone]

CHANCE = random.Random(1)

# Dask's messages begin with their length in 8 bytes.
BYTES = {
    "random": CHANCE.randbytes(1 << 20),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a length of 1 TiB": struct.pack("<Q", 1 << 40),
    "the start of 8 GiB": struct.pack("<Q", 1 << 33) + bytes(100),
    "half a message": struct.pack("<Q", 100) + bytes(50),
    "a number of frames that is none": struct.pack("<QQ", 16, 1 << 40) + bytes(8),
    "silence": b"",
}

# To a worker, in place of a message of another rank, of the scheduler or of nobody.
MESSAGES: list[dict[str, Any]] = [
    {"op": "dbfs_deliver", "reply": False, "message": b"junk"},
    {"op": "dbfs_deliver", "reply": False, "message": pickle.dumps(5)},
    {"op": "dbfs_deliver", "reply": True},
    {"op": "dbfs_start_rank", "reply": True},
    {"op": "dbfs_start_rank", "reply": True, "message": b"junk"},
    {"op": "dbfs_start_rank", "reply": True, "message": b"junk", "more": 1},
    {"op": "dbfs_of_another_version", "reply": True},
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[distributed.Client]:
    # By TCP, so that ranks take frames at ports of their own.
    with dask.config.set({"dbfs.exchange": "tcp"}):
        with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None, memory_limit="1GiB") as client:
            # The preload that makes the CPU stand for a GPU needs the plugin.
            dbfs.install(client)
            client.run(pretend_to_have_a_gpu)
            yield client


def doors(client: distributed.Client) -> list[str]:
    """Addresses of the scheduler, the workers and the nannies."""
    workers = joined_workers(client)
    return [client.scheduler.address, *workers, *(worker["nanny"] for worker in workers.values())]


def test_bytes_that_are_no_message(cluster: distributed.Client) -> None:
    with dbfs.load("grid2d:side=30", client=cluster, backend="cuda") as graph:
        before = doors(cluster)
        connections = []
        for address in before:
            host, port = address.removeprefix("tcp://").split(":")
            for junk in BYTES.values():
                connections.append(socket.create_connection((host, int(port)), timeout=5))
                connections[-1].settimeout(5)
                # The other end may close the connection as soon as it has seen enough.
                try:
                    connections[-1].sendall(junk)
                except OSError:
                    continue
            assert graph.bfs(0, validate=True, deadline="20s").depth == 58
        # More than any cluster has clients.
        host, port = cluster.scheduler.address.removeprefix("tcp://").split(":")
        connections += [socket.create_connection((host, int(port)), timeout=5) for _ in range(300)]
        with distributed.Client(cluster.scheduler.address, set_as_default=False) as other:
            assert [status.n for status in dbfs.graphs(client=other)] == [900]
        assert graph.bfs(0, validate=True, deadline="20s").depth == 58
        for connection in connections:
            connection.close()
        assert doors(cluster) == before


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message["op"])
def test_messages_that_are_none_of_dbfs(cluster: distributed.Client, message: dict[str, Any]) -> None:
    async def send(address: str, graph_id: str) -> None:
        comm = await connect(address)
        named = {"graph_id": graph_id} if message["op"] == "dbfs_deliver" else {}
        # Dask answers some of these messages with an error, and some by closing the connection.
        await asyncio.wait_for(asyncio.gather(send_recv(comm, **message, **named), return_exceptions=True), 5)
        await comm.close()

    with dbfs.load("grid2d:side=30", client=cluster, backend="cuda") as graph:
        before = doors(cluster)
        for address in graph.record.addresses:
            cluster.sync(send, address, graph.record.graph_id)
        assert graph.bfs(0, validate=True, deadline="20s").depth == 58
        assert doors(cluster) == before
