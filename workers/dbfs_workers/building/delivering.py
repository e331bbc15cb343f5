"""Bins of a build on their way from the rank that made them to their owners.

The task that bins a piece delivers the bins itself, over Dask's own connections, and waits until every owner has
stored them. So a rank has one piece's bins under way for each of its threads, however many pieces there are. As Dask
tasks, bins would be p * p tasks a round.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import distributed
from distributed.protocol import to_serialize

from dbfs_workers.base.errors import DeadlineExceededError, StaleRunError
from dbfs_workers.building.bin_store import BinStore, EdgeBin
from dbfs_workers.building.reading import require_wanted
from dbfs_workers.search.partition.stripe import Stripe


class UnspilledResult:
    """Base class of a task's result that stays in memory, since other tasks of its worker change the result.

    Dask spills a worker's results, the longest unused first, once the worker's memory fills. A result that can't be
    pickled would end that at once: all others would stay in memory, and the nanny would end the worker. So the file
    that Dask writes of this result holds only its key.
    """

    def __init__(self) -> None:
        try:
            self._key: Any = distributed.get_worker().get_current_task()
        except ValueError:
            # Outside a task: no Dask key, and nothing that would spill the object.
            self._key = None

    def __reduce__(self) -> tuple[Callable[..., UnspilledResult], tuple[Any]]:
        if self._key is None:
            raise TypeError(f"{type(self).__name__} made outside a task can't be pickled")
        _spilled[self._key] = self
        return _find, (self._key,)


# By Dask key: the objects that Dask believes to be on the disk.
_spilled: dict[Any, UnspilledResult] = {}


def forget(keys: Iterable[Any]) -> None:
    """Free the objects of some Dask keys, which Dask has dropped."""
    for key in keys:
        _spilled.pop(key, None)


def _find(key: Any) -> UnspilledResult:
    return _spilled[key]


OPERATION = "dbfs_take_edges"
"""Dask's name of the handler ``take_edges``."""

# How often a delivery looks whether a client still waits for the build.
_LOOK_SECONDS = 0.25

Bins = Sequence[EdgeBin]
"""The bins of one owner, one for each of its stores."""


class Collection(UnspilledResult):
    """The bins that a rank collects in one build. It is a task's result: Dask drops it when the build ends or fails.

    Args:
        token: the build's token.
        stores: number of adjacency lists that the rank will make, each of a store of its own. In a 1-D partition they
            are the rank's edges, and its in-edges if those are kept.
    """

    def __init__(self, token: str, rank: int, stripe: Stripe, stores: int) -> None:
        super().__init__()
        self.token = token
        self.rank = rank
        self.stores = [BinStore(stripe) for _ in range(stores)]
        self._cause: BaseException | None = None

    def add(self, bins: Bins) -> None:
        """Store the bins of a piece. Errors as for ``deliver``."""
        try:
            for store, each in zip(self.stores, bins, strict=True):
                store.add(each)
        except StaleRunError:
            # The client gets the error of any rank, so all ranks raise the error of the rank that failed first.
            if self._cause is not None:
                raise self._cause from None
            raise

    def close(self, cause: BaseException | None = None) -> None:
        """Drop the bins, and refuse further ones; ``cause`` is the error of a build that failed here."""
        self._cause = self._cause or cause
        for store in self.stores:
            store.close()


# By token and rank: a process may have several ranks, each in a thread.
_collections: weakref.WeakValueDictionary[tuple[str, int], Collection] = weakref.WeakValueDictionary()


def open_collection(token: str, rank: int, stripe: Stripe, stores: int) -> Collection:
    """Return a collection that peers can deliver to for as long as it exists. Arguments as of ``Collection``."""
    collection = Collection(token, rank, stripe, stores)
    _collections[token, rank] = collection
    return collection


def collection_open(_collection: Collection) -> bool:
    """Return True once a rank can take bins."""
    return True


async def take_edges(token: str, rank: int, bins: list[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Store a peer's bins; answer nothing, or ``error`` with the pickled error."""
    try:
        collection = _collections.get((token, rank))
        if collection is None:
            raise StaleRunError(f"rank {rank}: bins arrived after the end of their build")
        # In a thread: copying a large bin would keep the event loop from answering.
        await asyncio.to_thread(collection.add, [EdgeBin(*arrays) for arrays in bins])
        return {}
    except Exception as error:
        return {"error": pickle.dumps(error)}


def deliver(
    collection: Collection,
    bins: Sequence[Bins],
    addresses: Sequence[str],
    timeout: float,
    owners: Sequence[int] | None = None,
) -> None:
    """Deliver a piece's bins to their owners, and wait until they are stored. Called in a task of the rank's worker.

    Args:
        collection: this rank's own collection of the build.
        bins: the bins by owner.
        addresses: the workers' addresses, by rank.
        timeout: seconds that the delivery may take.
        owners: the ranks that take bins; all of them if None.

    Raises:
        StaleRunError: the build is over.
        Exception: the build failed on an owner, with this error.
        OSError: an owner's worker is lost.
        RunCancelledError: no client waits for the build any more.
        DeadlineExceededError: an owner did not answer in time.
    """
    token, rank, p = collection.token, collection.rank, len(addresses)
    # Each rank begins with the rank after it: if all began with rank 0, that rank would be the bottleneck.
    others = [other for step in range(1, p) if (other := (rank + step) % p) in (owners or range(p))]
    if owners is None or rank in owners:
        collection.add(bins[rank])
    if not others:
        return
    worker = distributed.get_worker()

    async def send(owner: int) -> None:
        # Lists, because between workers of one process Dask unpacks arrays in lists but not in tuples.
        framed = [[to_serialize(array) for array in (each.rows, each.columns, each.starts)] for each in bins[owner]]
        answer = await getattr(worker.rpc(addresses[owner]), OPERATION)(token=token, rank=owner, bins=framed)
        if "error" in answer:
            raise pickle.loads(answer["error"])

    async def send_all() -> None:
        await asyncio.wait_for(asyncio.gather(*map(send, others)), timeout)

    sending = asyncio.run_coroutine_threadsafe(send_all(), worker.loop.asyncio_loop)
    try:
        # Dask tries for half a minute to reach a worker that is lost. The client has given the build up long before.
        while not concurrent.futures.wait([sending], _LOOK_SECONDS).done:
            require_wanted("delivering bins")
        sending.result()
    except TimeoutError:
        late = f"rank {rank}: the other ranks did not take the bins of a piece within {timeout:g} s"
        raise DeadlineExceededError(late) from None
    finally:
        sending.cancel()
