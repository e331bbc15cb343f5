"""The columns of a graph's edges on the ranks, and the check of one that gives weights."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dbfs import config
from dbfs.building.memory import Estimate, require_fit
from dbfs.building.stripes import has_in_edges, in_stripes
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Key, Ref, TaskGraph, release
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError
from dbfs.graph.striped import StripedGraph
from dbfs.service.asking import ask_ranks
from dbfs_workers.features.weights.columns import Prepared
from dbfs_workers.features.weights.messages import PrepareWeights
from dbfs_workers.features.weights.purpose import Number


def prepare(graph: StripedGraph, column: str, held: Sequence[Hashable], *, path: bool = False) -> None:
    """Have all ranks make a column ready.

    The ranks of another layout than 1d first get the edges in stripes, which they keep until the graph is unloaded.

    Args:
        held: by rank, the Dask key of what has the columns.
        path: whether the column is for paths between two vertices, which are searched for from both ends.

    Raises:
        InvalidOptionError: there is no such column, or an edge has a negative weight, NaN or none; the message names
            the column and the edge.
        InvalidOptionTypeError: the column has no numbers.
        GraphTooLargeError: the workers have too little memory for the edges in stripes.
    """
    record, doing = graph.record, f"preparing the weights {column!r} of {graph.name}"

    def ask(stripes: Sequence[tuple[Key, Key] | None]) -> list[Prepared]:
        messages = {
            rank: PrepareWeights(record.graph_id, partition, attributes, column, path, of_rank)
            for rank, (partition, attributes, of_rank) in enumerate(
                zip(graph.partition_keys, held, stripes, strict=True)
            )
        }
        return [answer.value() for answer in ask_ranks(graph.gang, messages, doing, record).values()]

    answers = ask([None] * graph.gang.p)
    if not all(answer.striped for answer in answers):
        with _striped(graph, doing) as stripes:
            answers = ask(stripes)
    wrong = next((answer.wrong for answer in answers if answer.wrong is not None), None)
    if wrong is not None:
        source, target = graph.python_ids(graph.numbering.vertices_at([wrong.source, wrong.target]))
        raise InvalidOptionError(
            f"{graph.name}: column {column!r} has {wrong.value} at the edge from {source!r} to {target!r}; "
            "shortest paths need a weight of at least 0 at every edge"
        )


@contextmanager
def _striped(graph: StripedGraph, doing: str) -> Iterator[list[tuple[Key, Key]]]:
    """Yield by rank the Dask keys of a graph's edges in stripes and of their attributes, which are data meanwhile."""
    gang, record, keeper, plan, token = graph.gang, graph.record, graph.keeper, TaskGraph(), uuid.uuid4().hex
    stripe, layout, in_edges = record.stripe, record.layout, has_in_edges(record)
    assert record.beside is not None and keeper is not None and layout is not None
    rows = (1 + in_edges) * -(-sum(info.m_local for info in record.infos) // gang.p)
    needed = Estimate({"csr": (1 + in_edges) * 8 * (stripe.n_local + 1) + 4 * rows}, {}, {})
    # The bins of both parities, with parents.
    needed.run["bins"] = 2 * 2 * 4 * gang.p * layout.bin_entries(stripe)
    keeper.count(needed, record.beside.edge_schema, rows)
    require_fit(gang, "its edges in stripes, for paths by weight,", needed, graph.name)
    partitions = in_stripes(plan, record, token, float(config.get("build.memory-share")), doing)
    own = [Ref(key) for key in record.partition_keys]
    attributes = keeper.add_striped(plan, record, own, partitions, token, both=in_edges)
    futures = gang.submit(plan, [ref.key for ref in (*partitions, *attributes)])
    try:
        gang.finish([*futures.values()], of_call(), doing)
        yield [(edges.key, of.key) for edges, of in zip(partitions, attributes, strict=True)]
    finally:
        release(futures.values())


def number(value: Any, what: str) -> Number:
    """Return the value of the option ``what``, a number of at least 0.

    Raises:
        InvalidOptionTypeError: the value is not a number.
        InvalidOptionError: the value is negative or NaN.
    """
    if isinstance(value, bool | np.bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidOptionTypeError(f"{what} must be a number, not {value!r} ({type(value).__name__})")
    plain: Number = value.item() if isinstance(value, np.generic) else value
    if not plain >= 0:
        raise InvalidOptionError(f"{what} must be at least 0, not {plain}")
    return plain
