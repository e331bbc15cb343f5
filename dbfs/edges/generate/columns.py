"""Columns of generated edges, drawn by the edge's number: the same on any number of ranks, and any range alone.

A column is a name, and what is drawn: ``weight=1..255``, ``length=0.0..1.0``, ``day=2020-01-01..2020-12-31``,
``kind=road|rail``. Each value of a range, or each word, is as probable as the others. A name alone is of 1..255.
"""

from __future__ import annotations

import datetime
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.edge_list import Attributes, EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.tables.attributes import column_names
from dbfs.errors import InvalidOptionError
from dbfs_workers.building.pieces import Piece

if TYPE_CHECKING:
    import pyarrow as pa

E = TypeVar("E", bound=EdgeList)

_DEFAULT: Final = "1..255"
_RANGE: Final = re.compile(r"(.+?)\.\.(.+)")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?")
# Beyond that, values of a range would differ in their probabilities.
_MOST_VALUES: Final = 2**40


class Draw(Protocol):
    """What a column's values are. It is picklable."""

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the values, one of ``tables.attributes.stored_schema``."""

    def values(self, piece: Piece, raw: NDArray[np.uint64]) -> pa.Array:
        """Return the value of each edge of a piece, given a random number of 64 bits of each."""


@dataclass(frozen=True)
class Whole:
    """Integers, or dates by the number of their day, of ``low``..``high``."""

    low: int
    high: int
    dates: bool = False

    @property
    def kind(self) -> pa.DataType:
        import pyarrow as pa

        return pa.date32() if self.dates else pa.int64()

    def values(self, piece: Piece, raw: NDArray[np.uint64]) -> pa.Array:  # noqa: ARG002
        import pyarrow as pa

        drawn = counter.below(np, raw, self.high - self.low + 1) + self.low
        return pa.array(drawn.astype(np.int32), pa.int32()).cast(self.kind) if self.dates else pa.array(drawn)


@dataclass(frozen=True)
class Real:
    """Floats of ``low`` to below ``high``."""

    low: float
    high: float

    @property
    def kind(self) -> pa.DataType:
        import pyarrow as pa

        return pa.float64()

    def values(self, piece: Piece, raw: NDArray[np.uint64]) -> pa.Array:  # noqa: ARG002
        import pyarrow as pa

        share = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        drawn = self.low + share * (self.high - self.low)
        # The sum may have been rounded up.
        return pa.array(np.minimum(drawn, np.nextafter(self.high, self.low)))


@dataclass(frozen=True)
class Words:
    """Some words."""

    words: tuple[str, ...]

    @property
    def kind(self) -> pa.DataType:
        import pyarrow as pa

        return pa.dictionary(pa.int32(), pa.string())

    def values(self, piece: Piece, raw: NDArray[np.uint64]) -> pa.Array:  # noqa: ARG002
        import pyarrow as pa

        drawn = counter.below(np, raw, len(self.words)).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(drawn), pa.array(self.words, pa.string()))


_NO_DRAWS: Final[Mapping[str, Draw]] = MappingProxyType({})


@dataclass(frozen=True)
class DrawnColumn:
    """A column: its name, the key of its sequence of random numbers, and what is drawn."""

    name: str
    key: int
    draw: Draw


@dataclass(frozen=True)
class DrawnRows:
    """The columns of a piece.

    Attributes:
        numbered: whether the piece is a range of numbers of edges. Else an edge's number is made of its ends, by which
            parallel edges would be alike: such a model has none.
    """

    piece: Any
    numbered: bool
    columns: tuple[DrawnColumn, ...]

    def attributes(self) -> pa.Table:
        """Return a row for each edge that ``piece.read`` returns."""
        import pyarrow as pa

        if self.numbered:
            numbers = np.arange(self.piece.start, self.piece.stop)
        else:
            source, target = self.piece.read()
            numbers = counter.numbers(np, 0, source) ^ target.astype(np.uint64)
        drawn = [each.draw.values(self.piece, counter.numbers(np, each.key, numbers)) for each in self.columns]
        return pa.table(drawn, [each.name for each in self.columns])


@dataclass(frozen=True, eq=False)
class DrawnAttributes(Attributes):
    """Columns of generated edges, which are ``edges``."""

    edges: EdgeList
    numbered: bool
    columns: tuple[DrawnColumn, ...]

    def cut(self, piece_edges: int) -> Sequence[DrawnRows]:
        """Cut as the edges are cut."""
        return [DrawnRows(piece, self.numbered, self.columns) for piece in self.edges.cut(piece_edges)]


def drawing(edges: E, texts: Sequence[str], *, numbered: bool, own: Mapping[str, Draw] = _NO_DRAWS) -> E:
    """Return generated edges with columns.

    Args:
        texts: each column as ``NAME`` or ``NAME=DRAW``: see above.
        numbered: as of ``DrawnRows``.
        own: draws that the model has of its own, by their texts.

    Raises:
        InvalidOptionError: a text has another form, a range is empty or has more than 2^40 values, or a name occurs
            twice.
    """
    import pyarrow as pa

    pairs = [(name, draw if equals else _DEFAULT) for name, equals, draw in (text.partition("=") for text in texts)]
    names = column_names([name for name, _ in pairs], "edge_columns")
    # A column of another graph, or of another name, is independent of this one.
    start = counter.key(zlib.crc32(edges.name.encode()))
    columns = tuple(
        DrawnColumn(
            name,
            counter.key(start, zlib.crc32(name.encode())),
            own.get(draw) or _draw(draw, f"{edges.name}: column {name!r}"),
        )
        for name, draw in zip(names, (draw for _, draw in pairs), strict=True)
    )
    schema = pa.schema([pa.field(each.name, each.draw.kind) for each in columns])
    return replace(edges, attributes=DrawnAttributes(schema, edges, numbered, columns))


def _draw(text: str, where: str) -> Draw:
    found = _RANGE.fullmatch(text)
    if found is None:
        words = text.split("|")
        if not all(words) or len(set(words)) < len(words):
            raise _no_draw(text, where, "it is neither a range nor some distinct words")
        return Words(tuple(words))
    ends = found.groups()
    draw: Whole | Real
    if all(map(_WHOLE.fullmatch, ends)):
        draw = Whole(int(ends[0]), int(ends[1]))
    elif all(map(_NUMBER.fullmatch, ends)):
        draw = Real(float(ends[0]), float(ends[1]))
    else:
        try:
            first, last = map(datetime.date.fromisoformat, ends)
        except ValueError:
            raise _no_draw(text, where, "its ends are neither two numbers nor two dates") from None
        epoch = datetime.date(1970, 1, 1)
        draw = Whole((first - epoch).days, (last - epoch).days, dates=True)
    if draw.low > draw.high or (isinstance(draw, Real) and draw.low == draw.high):
        raise _no_draw(text, where, "the range is empty")
    if isinstance(draw, Whole) and draw.high - draw.low >= _MOST_VALUES:
        raise _no_draw(text, where, "the range has more than 2^40 values")
    return draw


def _no_draw(text: str, where: str, why: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{where} can't be drawn of {text!r}: {why}. Generated edges draw 'weight=1..255', 'length=0.0..1.0', "
        "'day=2020-01-01..2020-12-31' or 'kind=road|rail'"
    )
