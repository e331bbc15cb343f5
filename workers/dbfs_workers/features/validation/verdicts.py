"""The short way of a validation on GPUs: a client's calls straight to the ranks, instead of Dask tasks.

Three calls to each rank: pack the labels' words, check the rank's edges against the words of all ranks, free the words.
Ranks map each other's words. The answers only say that the labels are right. If they are not, the tasks of
``tasks.validation`` find out which rules are broken.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.features.validation import tasks
from dbfs_workers.serving.feature import WorkerFeature, WorkerView
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.reads.messages import KeptLabels, ReadMessage
from dbfs_workers.serving.rpc import PickledValue

# Packed words that a worker keeps, by validation: those of clients that left before they freed theirs are dropped.
_MOST_VALIDATIONS: Final = 4


@dataclass(frozen=True)
class PackWords(ReadMessage[PickledValue[Any] | None]):
    """Pack the rank's labels, and keep their words until ``FreeWords``; return the words for peers.

    Returns None if the labels break a rule.

    Attributes:
        token: names the validation.
        sources: positions at distance 0.
        farthest: largest distance allowed; None for no bound.

    Raises:
        ExchangeUnavailableError: the system does not allow GPU memory to be exported.
        GraphTooLargeError, DeviceFailedError: see ``tasks.validation.pack_kept``.
    """

    token: str
    sources: tuple[int, ...]
    farthest: int | None


@dataclass(frozen=True)
class CheckWords(ReadMessage[tuple[int, int, NDArray[np.uint32]] | None]):
    """Check the rank's edges against the words of all ranks; return None if an edge breaks a rule.

    Returns the number of edges, of those within the reached set without self-loops, and the bitmap of the vertices that
    no edge of the rank supports; see ``checks.validation.EdgeCheck``. One rank alone returns None for an unsupported
    vertex, and no bitmap.

    Attributes:
        token: names the validation.
        words: by rank, what ``PackWords`` returned.
        edges: Dask key of the input edges that the rank keeps, or of its partition.
        of_input: whether they are the input's.
        order: Dask key of the order beside the edges (``serving.orders.place_order``) if the edges join vertices and
            the graph has an order; else None.
        predecessors: whether the labels have predecessors.
        directed: whether edges hold in one direction only.
        farthest: largest distance allowed; None for no bound.

    Raises:
        StaleRunError: the worker does not have the words, the edges or the order any more.
        ExchangeUnavailableError: a peer has freed its words.
        GraphTooLargeError, DeviceFailedError: the rank's GPU is full, or failed.
    """

    token: str
    words: tuple[PickledValue[Any], ...]
    edges: Hashable
    of_input: bool
    order: Hashable | None
    predecessors: bool
    directed: bool
    farthest: int | None


@dataclass(frozen=True)
class FreeWords(WorkerMessage[None]):
    """Free the words of a validation.

    Attributes:
        token: names the validation.
    """

    token: str


class Verdicts(WorkerFeature):
    """The handlers of one worker. The work is done in other threads, so that the event loop can answer messages."""

    def __init__(self, view: WorkerView) -> None:
        super().__init__(view)
        self._data = view.worker.data
        self._kept = view.kept_labels
        self._packed: OrderedDict[str, Any] = OrderedDict()

    @PackWords.handler
    async def pack_words(self, message: PackWords) -> PickledValue[Any] | None:
        place = message.place
        assert isinstance(place, KeptLabels)
        labels = self._kept(place.graph_id, place.run_id, place.index)
        stripe, graph_id, options = message.stripe, place.graph_id, (message.sources, message.farthest)
        packed = await asyncio.to_thread(tasks.pack_shared, stripe, message.rank, graph_id, labels, *options)
        if packed.violations:
            return None
        self._packed[message.token] = packed
        while len(self._packed) > _MOST_VALIDATIONS:
            self._packed.popitem(last=False)
        # Words that no peer needs would travel through the host.
        return PickledValue.of(packed if message.stripe.p > 1 else None)

    @CheckWords.handler
    async def check_words(self, message: CheckWords) -> tuple[int, int, NDArray[np.uint32]] | None:
        try:
            own, edges = self._packed[message.token], self._data[message.edges]
            order = None if message.order is None else self._data[message.order]
        except KeyError as error:
            raise StaleRunError(f"rank {message.rank} does not have {error} for a validation any more") from None
        return await asyncio.to_thread(_checked, message, own, edges, order)

    @FreeWords.handler
    async def free_words(self, message: FreeWords) -> None:
        self._packed.pop(message.token, None)


def _checked(message: CheckWords, own: Any, edges: Any, order: Any) -> tuple[int, int, NDArray[np.uint32]] | None:
    packed = [own if rank == message.rank else words.value() for rank, words in enumerate(message.words)]
    options = message.predecessors, message.directed, message.farthest
    if message.of_input:
        check = tasks.check_input(message.stripe, message.rank, edges, packed, order, *options)
    else:
        check = tasks.check_partition(edges, packed, *options)
    unsupported = check.unsupported
    if message.stripe.p == 1:
        # The verdict of one rank is that of all.
        if unsupported.any():
            return None
        unsupported = unsupported[:0]
    return None if check.violations else (check.edges, check.component_edges, unsupported)
