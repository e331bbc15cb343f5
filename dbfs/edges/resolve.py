"""The argument of ``load`` and its like, as an edge list: an edge list itself, a file's path or a generator's spec."""

from __future__ import annotations

import os

from dbfs.edges import generate, readers
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import EdgeInputError, InvalidOptionError


def edge_list(
    edges: EdgeList | str | os.PathLike[str],
    *,
    directed: bool | None = None,
    format: str | None = None,  # noqa: A002 - the word users expect
) -> EdgeList:
    """Return the edge list of a path or a generator's spec; return an edge list as it is.

    Arguments and errors as of ``load``.
    """
    if isinstance(edges, EdgeList):
        if directed is not None or format is not None:
            raise InvalidOptionError("directed= and format= are for files; leave them out with an edge list")
        return edges
    if isinstance(edges, str) and generate.is_spec(edges):
        if format is not None:
            raise InvalidOptionError(f"format= is for files; {edges} is a generator")
        generated = generate.parse(edges)
        if directed is not None and directed != generated.directed:
            raise InvalidOptionError(
                f"{generated.name} is {'' if generated.directed else 'un'}directed; directed= is for files"
            )
        return generated
    if isinstance(edges, str | os.PathLike):
        return readers.open_edges(edges, format=format, directed=directed)
    raise EdgeInputError(f"edges must be an edge list, a path or a generator's spec, not {type(edges).__name__}")
