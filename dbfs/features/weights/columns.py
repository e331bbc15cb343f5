"""The columns of a graph's edges on the ranks, and the check of one that gives weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dbfs.errors import InvalidOptionError, InvalidOptionTypeError
from dbfs.graph.striped import StripedGraph
from dbfs.service.asking import ask_ranks
from dbfs_workers.features.weights.messages import PrepareWeights
from dbfs_workers.features.weights.purpose import Number


def prepare(graph: StripedGraph, column: str, held: Sequence[Hashable], *, path: bool = False) -> None:
    """Have all ranks make a column ready.

    Args:
        held: by rank, the Dask key of what has the columns.
        path: whether the column is for paths between two vertices, which are searched for from both ends.

    Raises:
        InvalidOptionError: there is no such column, or an edge has a negative weight, NaN or none; the message names
            the column and the edge. Or the graph is one that is not traversed by weight.
        InvalidOptionTypeError: the column has no numbers.
    """
    record = graph.record
    messages = {
        rank: PrepareWeights(record.graph_id, partition, attributes, column, path)
        for rank, (partition, attributes) in enumerate(zip(graph.partition_keys, held, strict=True))
    }
    answers = ask_ranks(graph.gang, messages, f"preparing the weights {column!r} of {graph.name}", record)
    wrong = next((found for answer in answers.values() if (found := answer.value()) is not None), None)
    if wrong is not None:
        source, target = graph.python_ids(graph.numbering.vertices_at([wrong.source, wrong.target]))
        raise InvalidOptionError(
            f"{graph.name}: column {column!r} has {wrong.value} at the edge from {source!r} to {target!r}; "
            "shortest paths need a weight of at least 0 at every edge"
        )


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
