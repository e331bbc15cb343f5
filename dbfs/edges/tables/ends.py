"""Ends: the columns of a table that hold the two ends of an edge, found by the caller's names or by well-known ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dbfs.errors import EdgeInputError, InvalidOptionError, InvalidOptionTypeError
from dbfs_workers.base.text import LONGEST_NAME, counted, did_you_mean, printable

ColumnNames: TypeAlias = str | Sequence[str] | None
"""The column of an end; several columns for ids that are tuples; None for the default."""

# Names in a message, and characters of a name there: a table may have thousands of columns, and a file without a header
# has a first row of any length.
_MOST_NAMES = 20
_MOST_CHARACTERS = 30
_BY_OPTIONS = "source= and target= (--source-column and --target-column on the command line)"
_WELL_KNOWN = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))
"""Names that many programs give the columns of the ends, in lower case."""
_OF_VERTICES = ("vertex", "vertices")
"""Names of columns in tables that dbfs gives out, whose other columns are values."""


@dataclass(frozen=True)
class Ends:
    """The columns of an edge's ends.

    Attributes:
        source, target: names of columns, as many of each. One column holds ids; several hold the parts of tuples.
        strings: whether integers are taken as the strings of their digits.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    strings: bool = False

    def __str__(self) -> str:
        """Return the name of a graph of these columns: ``who -> whom``."""
        return printable(" -> ".join(", ".join(end) for end in (self.source, self.target)))

    @property
    def columns(self) -> list[str]:
        """The distinct columns, in order: all that is read of the table."""
        return list(dict.fromkeys((*self.source, *self.target)))


@dataclass(frozen=True)
class Columns:
    """The columns of a file.

    Attributes:
        names: names of all columns, in the file's order; empty if the file names none.
    """

    names: tuple[str, ...]
    ends: Ends

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are no ends."""
        return tuple(name for name in self.names if name not in self.ends.columns)


POSITIONS = Ends(("0",), ("1",))
"""The ends of a file that names no columns: its first two."""


def choose_ends(
    columns: Sequence[str],
    source: ColumnNames,
    target: ColumnNames,
    name: str,
    like: tuple[str, Columns] | None = None,
) -> Ends:
    """Return the columns of the ends among a table's ``columns``.

    If no columns are named, the ends are those of the well-known names ``source`` and ``target``, ``src`` and ``dst``,
    ``from`` and ``to``, or ``u`` and ``v``, in any case and at any place; else a table has two columns, the source and
    the target, neither of them named ``vertex`` or ``vertices``; or it has the columns of ids that are tuples in a file
    of ``dbfs convert``: ``src_0``, ``src_1``, ..., ``dst_0`` and so on.

    Args:
        columns: names of all columns, in the table's order.
        source, target: as of ``dbfs.load``.
        name: the table's name in messages.
        like: another file of the same graph, and its columns. If no columns are named, the table must have the same
            columns, in any order, and its ends are those of the other file.

    Raises:
        EdgeInputError: a column is not there, or occurs twice, or its name has more than 255 characters; or no columns
            are named, and the ends can't be told, or the columns are not those of ``like`` or are those of a table of
            results. The message lists the columns.
        InvalidOptionError: only one of ``source`` and ``target`` is given, or they name different numbers of columns,
            or the same ones.
        InvalidOptionTypeError: a name is not a string.
    """
    if source is not None or target is not None:
        ends = Ends(_names(source, "source"), _names(target, "target"))
    elif like is None:
        ends = _default_ends(columns, name)
    else:
        other, others = like
        if sorted(columns) != sorted(others.names):
            raise EdgeInputError(
                f"{name} has the columns {listed(columns)}, and {other} {listed(others.names)}; files of one graph "
                f"need the same columns, in any order, unless {_BY_OPTIONS} name those of an edge's ends"
            )
        ends = others.ends
    if len(ends.source) != len(ends.target):
        given = f"source= names {counted(len(ends.source), 'column')} and target= {len(ends.target)}"
        raise InvalidOptionError(f"{given}; expected as many of each")
    for column in ends.columns:
        if len(column) > LONGEST_NAME:
            raise EdgeInputError(
                f"{name}: the name of column {printable(column, _MOST_CHARACTERS)!r} has {len(column):,} characters; "
                f"at most {LONGEST_NAME} are read. Is the first row no header?"
            )
        found = columns.count(column)
        if found == 0:
            hint = did_you_mean(column, columns)
            raise EdgeInputError(f"{name} has no column {column!r}{hint} Its columns: {listed(columns)}")
        if found > 1:
            raise EdgeInputError(f"{name} has {found} columns named {column!r}; expected one")
    if ends.source == ends.target:
        raise InvalidOptionError(f"source= and target= both name {listed(ends.source)}; each edge would be a self-loop")
    return ends


def has_known_ends(columns: Sequence[str]) -> bool:
    """Return whether a table's columns include one pair of well-known names, each once."""
    return len(_known_ends(columns)) == 1


def _known_ends(columns: Sequence[str]) -> list[tuple[str, str]]:
    folded = [column.strip().lower() for column in columns]
    return [pair for pair in _WELL_KNOWN if folded.count(pair[0]) == folded.count(pair[1]) == 1]


def _default_ends(columns: Sequence[str], name: str) -> Ends:
    """Return the ends of a table of which no columns are named; see ``choose_ends``."""
    folded = [column.strip().lower() for column in columns]
    known = _known_ends(columns)
    if len(known) == 1:
        source, target = (columns[folded.index(end)] for end in known[0])
        return Ends((source,), (target,))
    values = [column for column, word in zip(columns, folded, strict=True) if word in _OF_VERTICES]
    if len(columns) == 2 and values:
        raise EdgeInputError(
            f"{name} has the columns {listed(columns)}: {values[0]!r} is that of a table of values, with a vertex in "
            f"each row, such as distances; if the rows are edges, say so by {_BY_OPTIONS}"
        )
    if len(columns) == 2:
        return Ends((columns[0],), (columns[1],))
    half = len(columns) // 2
    if columns and list(columns) == [f"{end}_{part}" for end in ("src", "dst") for part in range(half)]:
        return Ends(tuple(columns[:half]), tuple(columns[half:]))
    found = f"{counted(len(columns), 'column')} ({listed(columns)})"
    raise EdgeInputError(f"{name} has {found}; name those of an edge's ends by {_BY_OPTIONS}")


def listed(columns: Sequence[str]) -> str:
    """Return the columns' names for a message: the first of them, each cut to ``_MOST_CHARACTERS``."""
    if not columns:
        return "none"
    names = ", ".join(repr(printable(name, _MOST_CHARACTERS)) for name in columns[:_MOST_NAMES])
    return names + (f" and {len(columns) - _MOST_NAMES} more" if len(columns) > _MOST_NAMES else "")


def _names(given: ColumnNames, option: str) -> tuple[str, ...]:
    if given is None:
        raise InvalidOptionError(f"{option}= is missing; name the columns of both ends by {_BY_OPTIONS}")
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidOptionTypeError(f"{option} must be a column's name or a list of names, not {given!r}")
    if not names:
        raise InvalidOptionError(f"{option}= names no column; expected one or more")
    return names
