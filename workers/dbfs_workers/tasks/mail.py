"""The mail of the taskgraph engine: letters between the ranks of one traversal, over Dask's own connections.

A dependency between tasks on two workers costs Dask about six messages: to fetch the result, to note where its copies
are, and to free them. A letter is one message, which is not answered. Large arrays travel in frames of their own, and
by UCX they stay in GPU memory. Tasks take letters as coroutines of the worker's event loop, so that a task that waits
blocks no thread.

A letter that never comes is noticed by the run's deadline. If the run ends before, ``abort`` ends the wait.
"""

import asyncio
import pickle
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import distributed
from distributed.core import send_recv
from distributed.protocol import to_serialize

from dbfs_workers.errors import DeadlineExceededError, StaleRunError
from dbfs_workers.levels.state import TraversalState

OPERATION: Final = "dbfs_take_letter"
"""Dask's name of the handler ``take_letter``."""

# Bytes from which arrays travel in frames of their own, which costs 0.1 ms a frame. Pickling copies.
_FRAMED: Final = 64 * 1024
# Number of traversals and runs that ended whose late letters are dropped.
_ENDED_KEPT: Final = 1000

Letters = dict[Hashable, asyncio.Future[Any]]


@dataclass(frozen=True)
class Post:
    """The addresses and the deadline by which a task sends and takes letters.

    Attributes:
        addresses: the workers' addresses, by rank.
        timeout: seconds that a letter may take.
    """

    addresses: tuple[str, ...]
    timeout: float


# By run id and rank, the letters that arrived or are awaited. A process may have several ranks, of one event loop.
_boxes: dict[tuple[str, int], Letters] = {}
_states: weakref.WeakValueDictionary[tuple[str, int], TraversalState] = weakref.WeakValueDictionary()
# Run ids of traversals that ended, and of runs that were aborted, oldest first.
_ended: dict[str, None] = {}
_aborted: dict[str, None] = {}


def open_box(state: TraversalState) -> None:
    """Keep the letters of a traversal for as long as its state exists. Letters may have arrived before."""
    place = (state.spec.run_id, state.rank)
    _states[place] = state
    weakref.finalize(state, _close, *place).atexit = False


def state_of(run_id: str, rank: int) -> TraversalState | None:
    """Return a traversal's state in this process; None if there is none."""
    return _states.get((run_id, rank))


async def send(post: Post, run_id: str, rank: int, subject: Hashable, content: Any, framed: int = 0) -> None:
    """Send a letter to a rank, or put the letter into a box of this process.

    Args:
        post: the ranks' addresses.
        run_id: the traversal's run id.
        rank: the rank.
        subject: names the letter among those to the rank.
        content: the letter.
        framed: bytes of the content's arrays if they may travel in frames of their own; 0 for a content that must be
            pickled.

    Raises:
        OSError: the worker is lost.
    """
    worker = distributed.get_worker()
    address = post.addresses[rank]
    if address == worker.address:
        _put(run_id, rank, subject, content)
        return
    packed = pickle.dumps(content, protocol=5) if framed < _FRAMED else to_serialize(content)
    comm = await worker.rpc.connect(address)
    try:
        await send_recv(comm, op=OPERATION, reply=False, run_id=run_id, rank=rank, subject=subject, content=packed)
    finally:
        worker.rpc.reuse(address, comm)


async def take_letter(run_id: str, rank: int, subject: Hashable, content: Any) -> None:
    """Take a letter that another worker sent."""
    _put(run_id, rank, subject, pickle.loads(content) if isinstance(content, bytes) else content)


async def receive(post: Post, run_id: str, rank: int, subject: Hashable) -> Any:
    """Wait for a letter to a rank of this process, and return its content.

    Raises:
        DeadlineExceededError: the letter did not arrive in time.
        StaleRunError: the run has ended.
    """
    if _is_over(run_id):
        raise StaleRunError(f"rank {rank}: run {run_id} is over")
    box = _box(run_id, rank)
    letter = box.setdefault(subject, asyncio.get_running_loop().create_future())
    try:
        return await asyncio.wait_for(letter, post.timeout)
    except TimeoutError:
        late = f"rank {rank}: no letter {subject} of run {run_id} within {post.timeout:g} s"
        raise DeadlineExceededError(late) from None
    finally:
        box.pop(subject, None)


def abort(run_id: str) -> None:
    """End all waits for letters of a run, and drop later letters; ``run_id`` is the id of the run's first traversal."""
    _aborted[run_id] = None
    for place in [place for place in _boxes if _run(place[0]) == run_id]:
        for letter in _boxes.pop(place, {}).values():
            if not letter.done():
                letter.set_exception(StaleRunError(f"rank {place[1]}: run {run_id} is over"))


def _put(run_id: str, rank: int, subject: Hashable, content: Any) -> None:
    if _is_over(run_id):
        return
    letter = _box(run_id, rank).setdefault(subject, asyncio.get_running_loop().create_future())
    if not letter.done():
        letter.set_result(content)
    for over in (_ended, _aborted):
        if len(over) > 2 * _ENDED_KEPT:
            for ended in list(over)[:_ENDED_KEPT]:
                over.pop(ended, None)


def _box(run_id: str, rank: int) -> Letters:
    return _boxes.setdefault((run_id, rank), {})


def _is_over(run_id: str) -> bool:
    return run_id in _ended or _run(run_id) in _aborted


def _run(run_id: str) -> str:
    """Return the id of the run, with which the ids of its traversals begin."""
    return run_id.partition("-")[0]


def _close(run_id: str, rank: int) -> None:
    # A finalizer: in whatever thread.
    _ended[run_id] = None
    _boxes.pop((run_id, rank), None)
