"""ReadOptions: what a caller tells the readers of a file beyond its path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from dbfs.base.integers import whole_count
from dbfs.edges.tables.ends import POSITIONS, ColumnNames, Columns, Ends, choose_ends
from dbfs.edges.tables.ids import as_strings
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError

COMMENTS = (b"#", b"%", b"//")
"""Marks that begin a comment, unless the caller names another one."""

MISSING = (
    *("NA", "<NA>", "#NA", "#N/A", "N/A", "n/a", "NaN", "nan", "NAN", "-NaN", "-nan"),
    *("None", "none", "NONE", "null", "NULL", "Null", "\\N"),
)
"""Words that other programs write for a missing value, unless the caller names other ones; pandas' and SQL's."""


@dataclass(frozen=True)
class ReadOptions:
    """What a caller tells a reader; None for what the file's name, header and comments say.

    Attributes are the arguments of ``from_file``, and:

    Attributes:
        like: another file of the same graph, and its columns: see ``choose_ends``.
    """

    format: str | None = None
    directed: bool | None = None
    source: ColumnNames = None
    target: ColumnNames = None
    sep: str | None = None
    header: bool | None = None
    comment: str | None = None
    strict: bool = False
    bipartite: bool | None = None
    missing: Sequence[str] | None = None
    skip_rows: int | None = None
    ids: str | None = None
    like: tuple[str, Columns] | None = None

    def __post_init__(self) -> None:
        for option in ("sep", "comment"):
            value = getattr(self, option)
            if value is not None and not isinstance(value, str):
                raise InvalidOptionTypeError(f"{option} must be a text, not {value!r}")
        for option in ("directed", "header", "bipartite", "strict"):
            if getattr(self, option) not in (None, True, False):
                raise InvalidOptionTypeError(f"{option} must be True, False or None, not {getattr(self, option)!r}")
        as_strings(self.ids)
        if self.skip_rows is not None:
            whole_count(self.skip_rows, "skip_rows")
        if self.missing is not None:
            words = None if isinstance(self.missing, str | bytes) else tuple(self.missing)
            if words is None or not all(isinstance(word, str) for word in words):
                raise InvalidOptionTypeError(f"missing must be a list of words, such as ['NA'], not {self.missing!r}")
            object.__setattr__(self, "missing", words)
        if self.sep is not None and (len(self.sep) != 1 or not self.sep.isascii() or self.sep in _NO_MARKS):
            raise InvalidOptionError(
                f"sep is {self.sep!r}; expected one character: a blank, a tab, or a mark such as ',', ';', '|' or ':'"
            )
        if self.comment is not None and (self.comment.strip() != self.comment or not self.comment.isprintable()):
            raise InvalidOptionError(f"comment is {self.comment!r}; expected a mark without blanks, such as '#'")

    @property
    def given(self) -> list[str]:
        """The options that the caller gave."""
        return [
            field.name for field in fields(self) if field.name != "like" and getattr(self, field.name) != field.default
        ]

    @property
    def named(self) -> bool:
        """Whether columns are named."""
        return self.source is not None or self.target is not None

    @property
    def marks(self) -> tuple[bytes, ...]:
        """What begins a comment line."""
        if self.comment is None:
            return COMMENTS
        return (self.comment.encode(),) if self.comment else ()

    @property
    def missing_words(self) -> frozenset[str]:
        """The words of a text that stand for a missing id; an empty cell always does."""
        return frozenset(MISSING if self.missing is None else self.missing)

    @property
    def strings(self) -> bool:
        """Whether ids are the strings that are written."""
        return as_strings(self.ids)

    def columns(self, names: Sequence[str], path: str) -> Columns:
        """Return the columns of a file that names them; errors as of ``choose_ends``."""
        ends = choose_ends(names, self.source, self.target, path, self.like)
        return Columns(tuple(names), replace(ends, strings=self.strings))

    def positions(self, count: int, path: str) -> Ends:
        """Return the ends among ``count`` columns without names: the first two unless the caller names others."""
        ends = POSITIONS
        if self.named:
            ends = choose_ends([str(place) for place in range(count)], self.source, self.target, path)
        return replace(ends, strings=self.strings)

    def require_only(self, taken: Sequence[str], format: str, path: str) -> None:  # noqa: A002
        """Raise ``InvalidOptionError`` for options that a file's format has no place for.

        Args:
            taken: options that the format takes, apart from those that all formats take.
            path: the file.
        """
        if self.named and "source" not in taken:
            raise InvalidOptionError(
                f"source= and target= name columns of a table; format {format!r} has none ({path})"
            )
        for option in ("sep", "header", "comment", "bipartite", "missing", "skip_rows", "ids"):
            if getattr(self, option) is not None and option not in taken:
                raise InvalidOptionError(f"{option}= is not for the format {format!r} of {path}")


_NO_MARKS = "\"'\r\n\0_-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
