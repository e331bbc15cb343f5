"""What stands for an edge list: an edge list itself, a file's path, or a generator's spec."""

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
    """The edge list that a path or a generator's spec stands for; one that is an edge list already stays it.

    Arguments and errors as for ``load``.
    """
    if isinstance(edges, EdgeList):
        if directed is not None or format is not None:
            raise InvalidOptionError("directed= and format= are for files; an edge list has them already")
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
