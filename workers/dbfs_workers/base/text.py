"""Text that came from outside: the printable form of it, the mark of a message's field; counts.

Names, paths and ids reach terminals, logs, web pages and metrics. A character that does not print could move a
terminal's cursor, or fail to be encoded there: control characters, lone surrogates (bytes of a file's name that are not
UTF-8), marks that reverse the direction of text.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

LONGEST_TEXT = 4096
"""Most characters of a printable form: a path may have as many."""

LONGEST_NAME = 255
"""Most characters of a graph's name."""


def printable(value: object, most: int = LONGEST_TEXT) -> str:
    """Return the text of a value in at most ``most`` characters, all of them printable.

    Any other character becomes its escape sequence in Python, such as ``\\x1b``. A long text loses its middle. The
    printable form of a printable form is the same text.
    """
    text = _cut(str(value), most)
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return _cut(text, most)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` with the known word most like an unknown one, or a full stop if none is."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else "."


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun, ``one`` or ``many`` (with an s, if empty): ``1 rank``, ``1,200 vertices``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


@dataclass(frozen=True)
class Printable:
    """Mark of a ``str`` field: printable text of at most ``most`` characters, one of them no blank."""

    most: int

    def holds(self, value: object) -> bool:
        """Return whether a value is such a text."""
        return isinstance(value, str) and len(value) <= self.most and value.isprintable() and bool(value.strip())

    def __str__(self) -> str:
        return f"printable text of 1 to {self.most} characters"


GraphName = Annotated[str, Printable(LONGEST_NAME)]
"""Name that a user gives to a graph."""

Identifier = Annotated[str, Printable(LONGEST_NAME)]
"""Id of a graph, a client or a run."""

ShownText = Annotated[str, Printable(LONGEST_TEXT)]
"""Text that lists and pages show: the name of an edge list, which may be a path."""


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    start = most // 2
    return f"{text[:start]}…{text[start + 1 - most :]}"
