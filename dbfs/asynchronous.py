"""The calls with an asynchronous client, for type checkers: ``graph = await asynchronous.open("roads")``.

Each name here is the function of that name in ``dbfs``. Its type in ``dbfs`` is that for synchronous clients, because a
client's type does not say whether the client is asynchronous. ``dbfs.validate`` has both types.
"""

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

from dbfs import assembly
from dbfs.assembly import AsyncGraph
from dbfs.cluster.awaiting import unchanged
from dbfs.display import state
from dbfs.graph500 import benchmark
from dbfs.service import client as service
from dbfs.service import listing

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


def _typed(call: Callable[P, T], view: Callable[[T], A]) -> Callable[P, Coroutine[Any, Any, A]]:  # noqa: ARG001
    """Return the function itself; ``view`` gives the type of the awaitable's result."""
    return cast("Callable[P, Coroutine[Any, Any, A]]", call)


load = _typed(assembly.load, AsyncGraph)
open = _typed(assembly.open, AsyncGraph)  # noqa: A001 - dbfs.open's name
install = _typed(service.install, unchanged)
graphs = _typed(listing.graphs, unchanged)
runs = _typed(listing.runs, listing.async_runs)
cluster_state = _typed(state.cluster_state, unchanged)
graph500 = _typed(benchmark.graph500, unchanged)
