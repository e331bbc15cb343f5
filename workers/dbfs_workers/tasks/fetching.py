"""Bins of the taskgraph engine on their way from the rank that made them to the rank that contracts them.

A task of a large level fetches its bins itself, over Dask's own connections. As Dask tasks, bins would be p * p tasks
a level. An array travels in a frame of its own, and by UCX it stays in GPU memory.
"""

import asyncio
import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import distributed
from distributed.protocol import to_serialize

from dbfs_workers.errors import DbfsError, DeadlineExceededError, StaleRunError
from dbfs_workers.levels import phases
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.state import TraversalState

OPERATION = "dbfs_take_bin"
"""Dask's name of the handler ``take_bin``."""

# By run id and rank: a process may have several ranks, each in a thread.
_states: weakref.WeakValueDictionary[tuple[str, int], TraversalState] = weakref.WeakValueDictionary()


def offer_bins(state: TraversalState) -> None:
    """Let peers fetch the bins of a traversal for as long as its state exists."""
    _states[state.spec.run_id, state.rank] = state


async def take_bin(run_id: str, level: int, source: int, target: int) -> dict[str, Any]:
    """Answer a peer's request for a bin: ``bin`` with the bin, or ``error`` with the pickled error."""
    try:
        state = _states.get((run_id, source))
        if state is None:
            raise StaleRunError(f"rank {source}: run {run_id} is over, so its bins of level {level} are gone")
        return {"bin": to_serialize(phases.take_bin(state, run_id, level, target))}
    except DbfsError as error:
        return {"error": pickle.dumps(error)}


def fetch_bins(state: TraversalState, level: int, addresses: Sequence[str], timeout: float) -> list[Bin]:
    """Return all ranks' bins of a level for this rank. Called in a task of the rank's worker.

    Args:
        state: the traversal on this rank.
        level: the level.
        addresses: the workers' addresses, by rank.
        timeout: seconds that the fetch may take.

    Raises:
        StaleRunError: a rank has no such bin.
        OSError: a rank's worker is lost.
        DeadlineExceededError: a rank did not answer in time.
    """
    worker = distributed.get_worker()
    run_id, rank = state.spec.run_id, state.rank

    async def fetch(source: int) -> Bin:
        peer = worker.rpc(addresses[source])
        answer = await getattr(peer, OPERATION)(run_id=run_id, level=level, source=source, target=rank)
        if "error" in answer:
            raise pickle.loads(answer["error"])
        fetched: Bin = answer["bin"]
        return fetched

    async def fetch_all() -> list[Bin]:
        peers = (source for source in range(len(addresses)) if source != rank)
        return await asyncio.wait_for(asyncio.gather(*map(fetch, peers)), timeout)

    own = phases.take_bin(state, run_id, level, rank)
    try:
        return [own, *asyncio.run_coroutine_threadsafe(fetch_all(), worker.loop.asyncio_loop).result()]
    except TimeoutError:
        late = f"rank {rank}, level {level}: the bins of run {run_id} did not arrive within {timeout:g} s"
        raise DeadlineExceededError(late) from None
