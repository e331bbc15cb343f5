"""Updates of an asynchronous client's graph, and results that stay up to date."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from dbfs.cluster.awaiting import AsyncView, awaited, in_thread, unchanged
from dbfs.features.living.graph import LivingGraph
from dbfs.features.living.watch import LOOK_SECONDS, Change, LivingResult, Watch
from dbfs.graph.asynchronous import AsyncBFSResult, AsyncGraph

P = ParamSpec("P")
L = TypeVar("L", bound=LivingResult)
V = TypeVar("V", bound=AsyncBFSResult)


class AsyncWatch(AsyncView[Watch[LivingResult]], Generic[V]):
    """A result that is kept up to date: what ``AsyncGraph.watch`` returns.

    ``async for change in watch:`` waits for batches and yields a ``Change`` after each, until ``timeout`` passes
    without one. No thread is in use between two looks for a batch.
    """

    def __init__(self, watch: Watch[L], view: Callable[[L], V]) -> None:
        super().__init__(watch, watch.result.graph.gang.client)
        self._view: Callable[[], V] = lambda: view(watch.result)

    update = awaited(Watch.update, unchanged)

    @property
    def result(self) -> V:
        """The result, as it is now."""
        return self._view()

    async def __aiter__(self) -> AsyncIterator[Change]:
        last = time.monotonic()
        while self.synchronous.timeout is None or time.monotonic() < last + self.synchronous.timeout:
            change = await self.update()
            if change is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                yield change
                last = time.monotonic()


def _renewed(
    method: Callable[Concatenate[Any, P], LivingResult],
) -> Callable[Concatenate[V, P], Coroutine[Any, Any, V]]:
    """Return a method of a view as ``awaited`` does; the awaitable's result is a view of the same class."""

    @functools.wraps(method)
    async def call(self: V, /, *arguments: P.args, **options: P.kwargs) -> V:
        return type(self)(await in_thread(self._client, method, self.synchronous, *arguments, **options))

    return call


class AsyncLivingResult(AsyncBFSResult):
    """See ``LivingResult``."""

    changed = awaited(LivingResult.changed, unchanged)
    update = _renewed(LivingResult.update)


class AsyncLivingGraph(AsyncGraph):
    """See ``LivingGraph``. The assembled class has ``watch``, which names the class of its result."""

    insert_edges = awaited(LivingGraph.insert_edges, unchanged)
    delete_edges = awaited(LivingGraph.delete_edges, unchanged)
    insert_vertices = awaited(LivingGraph.insert_vertices, unchanged)
    delete_vertices = awaited(LivingGraph.delete_vertices, unchanged)
    compact = awaited(LivingGraph.compact, unchanged)
    freeze = awaited(LivingGraph.freeze, unchanged)
    thaw = awaited(LivingGraph.thaw, unchanged)
