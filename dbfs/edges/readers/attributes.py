"""Attributes of edges in the columns of files, which workers read piece by piece, as they read the ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from dbfs.edges.edge_list import Attributes, EdgeList
from dbfs.edges.tables.attributes import as_stored, require_columns, require_there, stored_schema
from dbfs.edges.tables.ends import Columns
from dbfs.edges.tables.ids import Place
from dbfs.errors import EdgeInputError
from dbfs_workers.building.pieces import AttributePiece, Piece

if TYPE_CHECKING:
    import pyarrow as pa

E = TypeVar("E", bound=EdgeList)


class PieceWithValues(Piece, Protocol):
    """A piece of a file whose rows have columns beside those of the ends."""

    def values(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the rows that ``read`` returns, in that order; errors as of ``read``."""


@dataclass(frozen=True, eq=False)
class PieceAttributes:
    """The attributes of a piece of a file.

    Attributes:
        piece: a ``PieceWithValues``.
    """

    piece: Any
    schema: pa.Schema
    path: str

    def attributes(self) -> pa.Table:
        """Return the rows as they are kept; errors as for ``Piece.read`` and ``as_stored``."""
        return as_stored(self.piece.values(self.schema.names), self.schema, Place(self.path))


@dataclass(frozen=True, eq=False)
class FileAttributes(Attributes):
    """Attributes in columns of a file, whose edges are ``edges``."""

    edges: EdgeList

    def cut(self, piece_edges: int) -> Sequence[AttributePiece]:
        """Cut as the edges are cut."""
        path = self.edges.path or self.edges.name
        return [PieceAttributes(piece, self.schema, path) for piece in self.edges.cut(piece_edges)]


@dataclass(frozen=True, eq=False)
class SetAttributes(Attributes):
    """Attributes in columns of several files, file by file."""

    parts: tuple[Attributes, ...]

    @classmethod
    def of(cls, parts: Sequence[EdgeList], where: str) -> SetAttributes:
        """Return the attributes of a set of files. Raise ``EdgeInputError`` if the types of two files differ."""
        found = [(part.name, part.attributes) for part in parts if part.attributes is not None]
        (first, own), *others = found
        for name, attributes in others:
            for field, other in zip(own.schema, attributes.schema, strict=True):
                if field != other:
                    raise EdgeInputError(
                        f"{where}: column {field.name!r} holds {field.type} in {first} and {other.type} in {name}; "
                        "files of one graph need the same types"
                    )
        of_files = tuple(attributes for _, attributes in found)
        return cls(own.schema, of_files, twice=any(each.twice for each in of_files))

    def cut(self, piece_edges: int) -> Sequence[AttributePiece]:
        """Cut file by file, as the edges are cut."""
        return [piece for part in self.parts for piece in part.cut(piece_edges)]


def keeping(edges: E, of: Columns, schema: pa.Schema, columns: Sequence[str]) -> E:
    """Return the edges of a file with some of its columns as attributes.

    Args:
        of: the columns of the file.
        schema: the Arrow schema of all columns, or of those that are kept.

    Errors as for ``EdgeList.keeping``.
    """
    require_columns(columns, of.names, of.ends, edges.name)
    stored = stored_schema(schema, columns, edges.name)
    values = tuple(value for value in edges.values if value not in columns)
    return replace(edges, values=values, attributes=FileAttributes(stored, edges))


WEIGHT: Final = "weight"
"""The column of the weights of files whose edges have one value each."""


def with_weights(edges: E, kind: str, columns: Sequence[str], *, twice: bool) -> E:
    """Return the edges of a file with their weights as an attribute.

    Args:
        kind: Arrow's name of their type; empty if there are none.
        columns: the columns to keep, of which there is only ``weight``.
        twice: as of ``Attributes``.

    Raises:
        EdgeInputError: another column is named, or there are no weights.
    """
    import pyarrow as pa

    if not kind:
        raise EdgeInputError(f"{edges.name} has no weights, which would be the column {WEIGHT!r}")
    require_there(columns, [WEIGHT], edges.name)
    kept = FileAttributes(pa.schema([pa.field(WEIGHT, pa.type_for_alias(kind))]), edges, twice=twice)
    return replace(edges, values=(), completes=False, attributes=kept)
