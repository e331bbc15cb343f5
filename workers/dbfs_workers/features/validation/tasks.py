"""The tasks of a validation: pack each rank's labels, check each rank's edges, merge the findings.

``dbfs.features.validation`` submits these tasks, and functions of ``validation``, which has the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.validation.validation import (
    EdgeCheck,
    Levels,
    PackedLabels,
    SharedTable,
    check_edges,
    pack_labels,
    partition_edges,
)
from dbfs_workers.search.partition.labels import in_type
from dbfs_workers.search.partition.partition import InputEdges, RankEdges, array_module, on_host
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.rpc import NAME

if TYPE_CHECKING:
    from dbfs_workers.features.validation.verdict import Violation
    from dbfs_workers.search.partition.labels import RankLabels
    from dbfs_workers.search.partition.ordering import DegreeOrder
    from dbfs_workers.serving.orders import OrderOnGpu

T = TypeVar("T")


class LabelStore(Protocol):
    """The part of the worker's plugin that these tasks use: labels that a rank keeps to itself."""

    def kept_labels(self, graph_id: str, run_id: str, index: int) -> RankLabels:
        """Return the labels of one traversal; raise ``ResultReleasedError`` if the rank dropped them."""


def pack_columns(
    stripe: Stripe,
    rank: int,
    distances: NDArray[Any],
    first: int,
    sources: Sequence[int],
    farthest: int | None,
) -> list[PackedLabels]:
    """Pack the columns of a batch's distances from the column ``first`` on, one for each source.

    Other arguments as for ``pack_labels``.
    """
    return [
        pack_labels(stripe, rank, in_type(distances[:, column], np.dtype(np.int32)), None, [source], farthest)
        for column, source in enumerate(sources, first)
    ]


def of_columns(function: Callable[..., T], by_column: Sequence[int], *arguments: Any) -> list[T]:
    """Call a function for each column of a batch.

    Args:
        by_column: the places of arguments that have, for each rank, a list of all columns.
        arguments: arguments of the function.
    """
    columns = zip(*(zip(*arguments[at], strict=True) for at in by_column), strict=True)
    calls = (dict(zip(by_column, column, strict=True)) for column in columns)
    return [function(*(call.get(at, argument) for at, argument in enumerate(arguments))) for call in calls]


def pack_kept(
    stripe: Stripe,
    rank: int,
    graph_id: str,
    run_id: str,
    index: int,
    sources: Sequence[int],
    farthest: int | None,
) -> PackedLabels:
    """Pack the labels that this worker's rank keeps of traversal ``index`` of a run.

    Errors as for ``WorkerService.kept_labels`` and ``failures.typed_errors``.
    """
    store: LabelStore = distributed.get_worker().plugins[NAME]
    packed = pack(stripe, rank, store.kept_labels(graph_id, run_id, index), sources, farthest)
    # With one rank the words stay on its GPU. With several, Dask sends them to the other ranks.
    return packed if stripe.p == 1 else replace(packed, words=on_host(packed.words))


def pack(stripe: Stripe, rank: int, labels: RankLabels, sources: Sequence[int], farthest: int | None) -> PackedLabels:
    """Pack labels where they are, on the host or on the rank's GPU; errors as for ``pack_kept``."""
    xp = array_module(labels.distances)
    with typed_errors(xp, f"rank {rank}, packing its labels"):
        packed = None if xp is np else _pack_right(stripe, rank, labels, sources, farthest)
        if packed is None:
            packed = pack_labels(stripe, rank, *labels.of_rows(stripe, rank), sources, farthest)
        return packed


def pack_shared(
    stripe: Stripe, rank: int, graph_id: str, labels: RankLabels, sources: Sequence[int], farthest: int | None
) -> PackedLabels:
    """Pack labels on a rank's GPU as ``pack``, with the words in memory that peers map.

    One rank alone has no peers, and wrong labels are for the tasks: their words stay as they are.
    """
    packed = pack(stripe, rank, labels, sources, farthest)
    if packed.violations or stripe.p == 1:
        return packed
    from dbfs_workers.features.validation.on_gpu import OwnWords

    with typed_errors(array_module(packed.words), f"rank {rank}, sharing its labels"):
        return replace(packed, words=OwnWords(packed.words, graph_id))


def _pack_right(
    stripe: Stripe, rank: int, labels: RankLabels, sources: Sequence[int], farthest: int | None
) -> PackedLabels | None:
    """Pack labels on the rank's GPU in one pass; None if they break a rule, which ``pack_labels`` then names."""
    from dbfs_workers.features.validation.on_gpu import pack

    words = pack(stripe, rank, labels, sources, farthest)
    return None if words is None else PackedLabels(words, ())


def for_peers(table: SharedTable) -> SharedTable:
    """Return the table as other ranks get it: a copy that does not hold the memory."""
    return replace(table)


def check_input(
    stripe: Stripe,
    rank: int,
    edges: list[InputEdges],
    packed: list[PackedLabels],
    order: DegreeOrder | OrderOnGpu | None,
    predecessors: bool,
    directed: bool,
    farthest: int | None,
) -> EdgeCheck:
    """Check the input edges that a rank keeps; see ``check_edges`` for the arguments.

    Errors as for ``check_partition``.
    """
    xp = array_module(edges[0][0]) if edges else np
    options: dict[str, Any] = {"predecessors": predecessors, "directed": directed, "farthest": farthest}
    with typed_errors(xp, f"rank {rank}, checking its edges"):
        return check_edges(stripe, rank, edges, packed, order, xp, **options)


def check_partition(
    edges: RankEdges,
    packed: list[PackedLabels],
    predecessors: bool,
    directed: bool,
    farthest: int | None,
) -> EdgeCheck:
    """Check the edges of a rank's partition; see ``check_edges`` for the arguments.

    Errors as for ``partition_edges`` and ``failures.typed_errors``.
    """
    parts = list(edges.parts())
    xp = array_module(parts[0].columns)
    options: dict[str, Any] = {"predecessors": predecessors, "directed": directed, "farthest": farthest}
    stripe, rank = edges.stripe, edges.rank
    with typed_errors(xp, f"rank {rank}, checking its edges"):
        pairs = chain.from_iterable(partition_edges(part) for part in parts)
        return check_edges(stripe, rank, pairs, packed, None, xp, **options)


def levels_of_rank(levels: Levels, rank: int) -> NDArray[np.int32]:
    """Return one rank's distances from the result of ``levels_along_predecessors``."""
    return levels[0][rank]


def levels_violation(levels: Levels, order: DegreeOrder | None) -> Violation | None:
    """Return the rule that is broken by the predecessors of ``levels``, in vertex ids; None if there is none."""
    violation = levels[1]
    return None if violation is None else violation.in_vertex_ids(order)


def typed_errors(xp: ModuleType, who: str) -> AbstractContextManager[None]:
    """Turn a GPU's errors into dbfs's, which a client without CuPy can read.

    The estimate of a graph's memory leaves out validation, so that a GPU may be full by then.
    """
    if xp is np:
        return nullcontext()
    from dbfs_workers.search.cuda.failures import typed_errors

    return typed_errors(who)
