"""A web service that answers with distances, routes and neighbourhoods in a graph, as JSON.

pip install starlette uvicorn
dbfs load roads.gr --name roads --scheduler tcp://HEAD:8786
export DASK_SCHEDULER_ADDRESS=tcp://HEAD:8786 DBFS_GRAPH=roads
uvicorn --app-dir examples/web_service --factory app:from_environment
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import distributed
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import dbfs
from dbfs import asynchronous, errors

Answer = Callable[[Request], Awaitable[JSONResponse]]

SECONDS = 10.0
"""Seconds that a request may wait for its traversal, the queue included."""

CONNECT_SECONDS = 2.0
"""Seconds that a request may wait for a connection to the scheduler."""

MOST_VERTICES = 1000
"""Most vertices that an answer lists."""

# The graph is opened again after these, since it may have been loaded again, by another scheduler too.
LOST = (errors.GraphNotFoundError, errors.WorkerLostError, errors.SchedulerLostError, errors.ClientError)

# The first class that fits decides. Any other error of dbfs is a fault of the service, status 500.
STATUSES: tuple[tuple[type[errors.DbfsError], int], ...] = (
    (errors.InvalidVertexError, 404),
    (errors.InvalidOptionError, 400),
    (errors.DeadlineExceededError, 504),
    # Too much to do at the moment.
    (errors.QueueFullError, 503),
    (errors.NoRoomForLabelsError, 503),
    (errors.RunCancelledError, 503),
    # The cluster lost the graph: the service goes on when an operator has loaded it again.
    (errors.WorkerLostError, 503),
    (errors.GraphNotFoundError, 503),
    # The service connects again with the next request.
    (errors.SchedulerLostError, 503),
    (errors.ClientError, 503),
)


class Served:
    """The graph of a name, opened when it is first asked for, and again when it is lost.

    Attributes:
        name: the name.
        client: the Dask client; None before the first connection and after a scheduler is lost.
    """

    def __init__(self, scheduler: str, name: str) -> None:
        self.name = name
        self.client: distributed.Client | None = None
        self._scheduler = scheduler
        self._graph: dbfs.AsyncGraph | None = None
        self._opening: asyncio.Task[dbfs.AsyncGraph] | None = None

    async def graph(self, lost: dbfs.AsyncGraph | None = None) -> dbfs.AsyncGraph:
        """Return the graph, but not the ``lost`` one. Requests that wait share one attempt to open it."""
        if self._graph is not None and self._graph is not lost:
            return self._graph
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Close the client. One that lost its scheduler would go on trying to reach it."""
        client, self.client, self._graph = self.client, None, None
        if client is not None:
            await client.close()

    async def _open(self) -> dbfs.AsyncGraph:
        if self.client is not None:
            with contextlib.suppress(errors.SchedulerLostError, errors.ClientError):
                self._graph = await asynchronous.open(self.name, client=self.client)
                return self._graph
        await self.close()
        try:
            self.client = await distributed.Client(
                self._scheduler, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS
            )
        except OSError as error:
            raise errors.SchedulerLostError(f"{self._scheduler} does not answer: {error}") from error
        self._graph = await asynchronous.open(self.name, client=self.client)
        return self._graph


class Pairs:
    """Searches together for the distances that requests ask for while others are searched for.

    A call of ``pair_distances`` takes hardly longer than one of ``distance``, so many requests at once wait little.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[dbfs.AsyncGraph, Any, asyncio.Future[int]]] = []
        self._searching: asyncio.Task[None] | None = None

    async def distance(self, graph: dbfs.AsyncGraph, pair: Any) -> int:
        """Return the distance of a pair of ids, -1 without a path; errors as of ``Graph.distance``."""
        found = asyncio.get_running_loop().create_future()
        self._waiting.append((graph, pair, found))
        if self._searching is None or self._searching.done():
            self._searching = asyncio.create_task(self._search())
        return await found

    async def _search(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            graph = some[-1][0]
            try:
                distances = await graph.pair_distances([pair for _, pair, _ in some], deadline=SECONDS)
            except Exception as error:
                # One wrong id must not fail the requests of others.
                answers = (
                    [error]
                    if len(some) == 1
                    else await asyncio.gather(
                        *(graph.distance(*pair, deadline=SECONDS) for _, pair, _ in some), return_exceptions=True
                    )
                )
            else:
                answers = distances.tolist()
            for (_, _, found), answer in zip(some, answers, strict=True):
                if found.done():
                    continue
                if isinstance(answer, BaseException):
                    found.set_exception(answer)
                else:
                    found.set_result(answer)


def create_app(scheduler: str, name: str) -> Starlette:
    """Return the application; ``scheduler`` is the scheduler's address, ``name`` the name of a graph.

    Scheduler and graph need not be there yet: requests are answered with status 503 until they are.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.served, app.state.pairs = Served(scheduler, name), Pairs()
        yield
        await app.state.served.close()

    routes = [
        Route("/health", of_graph(health)),
        Route("/graph", of_graph(describe)),
        Route("/distance", of_graph(distance)),
        Route("/route", of_graph(route)),
        Route("/neighbourhood", of_graph(neighbourhood)),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={errors.DbfsError: of_dbfs, HTTPException: of_request},
    )


def from_environment() -> Starlette:
    """Return the application for the scheduler and the graph that the environment names."""
    return create_app(os.environ["DASK_SCHEDULER_ADDRESS"], os.environ["DBFS_GRAPH"])


async def health(request: Request) -> JSONResponse:
    """``/health``: status 200 while the cluster has the graph on all of its workers, else 503."""
    served = request.app.state.served
    listed = {status.name: status for status in await asynchronous.graphs(client=served.client)}
    if served.name not in listed or listed[served.name].lost:
        raise HTTPException(503, f"the graph {served.name!r} is not loaded, or has lost a worker")
    return JSONResponse({"graph": served.name})


def of_graph(answer: Answer) -> Answer:
    """Return a route that answers from the graph of the name, also if that graph was loaded again meanwhile."""

    async def again(request: Request) -> JSONResponse:
        served: Served = request.app.state.served
        graph = request.state.graph = await served.graph()
        try:
            return await answer(request)
        except LOST:
            request.state.graph = await served.graph(lost=graph)
            return await answer(request)

    return again


async def describe(request: Request) -> JSONResponse:
    """``/graph``: the graph's name and its numbers of vertices and directed edges."""
    graph = graph_of(request)
    return JSONResponse({"name": graph.name, "n": graph.n, "m": graph.m})


async def distance(request: Request) -> JSONResponse:
    """``/distance?from=3&to=8``: edges on a shortest route; null if there is no route."""
    pair = named(request, "from"), named(request, "to")
    found = await request.app.state.pairs.distance(graph_of(request), pair)
    return JSONResponse({"distance": None if found < 0 else found})


async def route(request: Request) -> JSONResponse:
    """``/route?from=3&to=8``: the ids on a shortest route, both ends included; empty if there is no route."""
    found = await graph_of(request).path(named(request, "from"), named(request, "to"), deadline=SECONDS)
    return JSONResponse({"route": found})


async def neighbourhood(request: Request) -> JSONResponse:
    """``/neighbourhood?of=3&within=2``: the ids at most so many edges away, the first of them listed."""
    result = await graph_of(request).bfs(named(request, "of"), max_depth=whole(request, "within"), deadline=SECONDS)
    ids = await result.vertices()
    return JSONResponse({"count": result.reached, "vertices": ids[:MOST_VERTICES].tolist()})


def graph_of(request: Request) -> dbfs.AsyncGraph:
    """Return the graph that a request is answered from."""
    graph: dbfs.AsyncGraph = request.state.graph
    return graph


def named(request: Request, name: str) -> int | str:
    """Return a parameter of a request as an id: a whole number, or any text if the graph's ids are strings."""
    if graph_of(request).id_type.is_integer:
        return whole(request, name)
    if name not in request.query_params:
        raise HTTPException(400, f"the parameter {name!r} is missing")
    return request.query_params[name]


def whole(request: Request, name: str) -> int:
    """Return a parameter of a request, which must be a whole number."""
    text = request.query_params.get(name, "")
    try:
        return int(text)
    except ValueError:
        raise HTTPException(400, f"the parameter {name!r} must be a whole number, not {text!r}") from None


async def of_dbfs(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001 - Starlette's signature
    """Answer with an error of dbfs."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status, headers)


async def of_request(request: Request, error: Exception) -> JSONResponse:
    """Answer to a request that no route takes, or with a parameter that is missing or no number."""
    assert isinstance(error, HTTPException)
    paths = ", ".join(route.path for route in request.app.routes)
    message = f"there is no {request.url.path}; there are {paths}" if error.status_code == 404 else error.detail
    kind = HTTPStatus(error.status_code).phrase.replace(" ", "")
    return JSONResponse({"error": kind, "message": message}, error.status_code, error.headers)
