"""The example of a web service: its answers, its errors as JSON, and 200 requests at once."""

import asyncio
import importlib.util
import itertools
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import distributed
import httpx
import pytest

import dbfs
from tests.support.runs import ENDLESS, Background

FILE = Path(__file__).parents[2] / "examples" / "web_service" / "app.py"
SIDE = 20


@pytest.fixture(scope="module")
def app() -> ModuleType:
    """The module of the example."""
    spec = importlib.util.spec_from_file_location("web_service", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def serving(app: ModuleType, client: distributed.Client, name: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of the service, for a graph that is loaded under the name."""
    async with browsing(app.create_app(client.scheduler.address, name)) as browser:
        yield browser


@asynccontextmanager
async def browsing(service: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of a service."""
    async with service.router.lifespan_context(service):
        transport = httpx.ASGITransport(service, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service", timeout=60) as browser:
            yield browser


def test_answers_and_errors(app: ModuleType, client: distributed.Client) -> None:
    async def main() -> None:
        async with serving(app, client, "served") as browser:

            async def get(path: str) -> tuple[int, Any]:
                answer = await browser.get(path)
                return answer.status_code, answer.json()

            assert await get("/graph") == (200, {"name": "served", "n": 30, "m": 58})
            assert await get("/distance?from=3&to=8") == (200, {"distance": 5})
            assert await get("/route?from=3&to=1") == (200, {"route": [3, 2, 1]})
            assert await get("/neighbourhood?of=3&within=2") == (200, {"count": 5, "vertices": [1, 2, 3, 4, 5]})
            # One of several requests at once names an id that is not there.
            ends = ((3, 8), (29, 0), (3, 30), (5, 5))
            answers = await asyncio.gather(*(get(f"/distance?from={u}&to={v}") for u, v in ends))
            assert [status for status, _ in answers] == [200, 200, 404, 200]
            assert [answer.get("distance") for _, answer in answers] == [5, 29, None, 0]
            status, error = await get("/distance?from=3&to=30")
            assert (status, error["error"]) == (404, "InvalidVertexError")
            assert "vertices are 0..29" in error["message"]
            status, error = await get("/neighbourhood?of=3&within=-1")
            assert (status, error["error"]) == (400, "InvalidOptionError")
            assert await get("/distance?from=3&to=x") == (
                400,
                {"error": "BadRequest", "message": "the parameter 'to' must be a whole number, not 'x'"},
            )
            assert (await get("/distance?from=3"))[0] == 400
            paths = "/health, /graph, /distance, /route, /neighbourhood"
            words = f"there is no /nothing; there are {paths}"
            assert await get("/nothing") == (404, {"error": "NotFound", "message": words})
            answer = await browser.post("/graph")
            assert (answer.status_code, answer.json()["error"]) == (405, "MethodNotAllowed")
            assert await get("/health") == (200, {"graph": "served"})
            graph.unload()
            assert (await get("/health"))[0] == 503
            status, error = await get("/distance?from=3&to=8")
            assert (status, error["error"]) == (503, "GraphNotFoundError")
            # The service goes on when an operator has loaded the graph again.
            with await asyncio.to_thread(dbfs.load, "star:n=20", client=client, ranks=2, name="served"):
                assert await get("/health") == (200, {"graph": "served"})
                assert await get("/distance?from=3&to=8") == (200, {"distance": 2})

    with dbfs.load("path:n=30", client=client, ranks=2, name="served") as graph:
        asyncio.run(main())


@pytest.mark.full
def test_no_route(app: ModuleType, client: distributed.Client) -> None:
    async def main() -> None:
        async with serving(app, client, "one-way") as browser:
            assert (await browser.get("/distance?from=2&to=0")).json() == {"distance": None}
            assert (await browser.get("/route?from=2&to=0")).json() == {"route": []}
            assert (await browser.get("/route?from=2&to=2")).json() == {"route": [2]}

    edges = dbfs.from_arrays([0, 1], [1, 2], directed=True)
    with dbfs.load(edges, client=client, ranks=2, name="one-way"):
        asyncio.run(main())


@pytest.mark.full
def test_200_requests_at_once(
    app: ModuleType, client: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    # Beside other tests 200 requests take longer than one request may.
    monkeypatch.setattr(app, "SECONDS", 100.0)
    draw = random.Random(7)

    def ask(browser: httpx.AsyncClient, start: int, end: int, number: int) -> Coroutine[Any, Any, httpx.Response]:
        if number % 3 == 0:
            return browser.get(f"/distance?from={start}&to={end}")
        if number % 3 == 1:
            return browser.get(f"/route?from={start}&to={end}")
        return browser.get(f"/neighbourhood?of={start}&within={number % 7}")

    def steps(start: int, end: int) -> int:
        """Edges between two vertices of the grid."""
        return abs(start // SIDE - end // SIDE) + abs(start % SIDE - end % SIDE)

    async def main() -> None:
        pairs = [(draw.randrange(SIDE * SIDE), draw.randrange(SIDE * SIDE)) for _ in range(200)]
        async with serving(app, client, "grid") as browser:
            answers = await asyncio.gather(*(ask(browser, *pair, number) for number, pair in enumerate(pairs)))
        for number, ((start, end), answer) in enumerate(zip(pairs, answers, strict=True)):
            assert answer.status_code == 200, answer.text
            got = answer.json()
            if number % 3 == 0:
                assert got == {"distance": steps(start, end)}
            elif number % 3 == 1:
                path = got["route"]
                assert (path[0], path[-1], len(path)) == (start, end, steps(start, end) + 1)
                assert all(steps(*edge) == 1 for edge in itertools.pairwise(path))
            else:
                near = [vertex for vertex in range(SIDE * SIDE) if steps(start, vertex) <= number % 7]
                assert got == {"count": len(near), "vertices": near}

    with dbfs.load(dbfs.grid2d(SIDE), client=client, name="grid"):
        asyncio.run(main())


@pytest.mark.full
@pytest.mark.alone
def test_the_service_is_there_before_its_scheduler_and_comes_back_with_it(app: ModuleType, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"

    async def main() -> None:
        service = app.create_app(address, "roads")
        async with browsing(service) as browser:
            # Requests that wait share one attempt to connect.
            answers = await asyncio.gather(*(browser.get("/distance?from=0&to=9") for _ in range(20)))
            assert {(each.status_code, each.json()["error"]) for each in answers} == {(503, "SchedulerLostError")}
            for edges, far in (("path:n=10", 9), ("star:n=10", 1)):
                # The second scheduler knows nothing of the first one's graph.
                with scheduler_of(port, tmp_path) as client:
                    assert (await browser.get("/health")).status_code == 503
                    await asyncio.to_thread(dbfs.load, edges, client=client, name="roads")
                    assert (await browser.get("/health")).json() == {"graph": "roads"}
                    assert (await browser.get("/distance?from=0&to=9")).json() == {"distance": far}

    asyncio.run(main())


@contextmanager
def scheduler_of(port: int, folder: Path) -> Iterator[distributed.Client]:
    """A client of a scheduler at a port, with one worker; both are killed at the end."""
    dask, local = (sys.executable, "-m", "dask"), ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
    address = f"tcp://127.0.0.1:{port}"
    with (folder / f"{port}.log").open("a") as log, ExitStack() as ending:
        for words in (("scheduler", "--port", str(port)), ("worker", address, "--no-nanny", "--nthreads", "1")):
            process = subprocess.Popen([*dask, *words, *local], stderr=log)
            ending.callback(process.wait)
            ending.callback(process.kill)
        with distributed.Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            yield client


@pytest.mark.full
def test_a_busy_gang(app: ModuleType, client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SECONDS", 1.0)

    async def main() -> None:
        async with serving(app, client, "busy") as browser:
            asked = [asyncio.create_task(browser.get(f"/distance?from=0&to={to}")) for to in range(6)]
            answers = await asyncio.gather(*asked)
        by_status = sorted((answer.status_code, answer.json()["error"]) for answer in answers)
        assert by_status[:4] == [(503, "QueueFullError")] * 4
        # At the deadline the scheduler's answer and the client's clock end a call in either order.
        assert {status for status, _ in by_status[4:]} == {504}
        assert {error for _, error in by_status[4:]} <= {"DeadlineExceededError", "LateError"}
        assert {answer.headers.get("retry-after") for answer in answers} == {"1", None}

    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2, name="busy") as graph:
        run = Background(graph)
        with dask.config.set({"dbfs.service.waiting-runs": 2}):
            asyncio.run(main())
        dbfs.runs(client=client)[0].cancel()
        run.join()
