"""The check of a message that arrived, or of JSON that was read: each field has a value of its type.

A sender of another version, or a program that is no dbfs, may send anything. A message that is refused here has changed
nothing. The check is against mistakes: a message is unpickled before, so every sender can run code (see SECURITY.md).
"""

import dataclasses
import functools
import types
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dbfs_workers.base.errors import DbfsError, FormatError, InvalidOptionError, VersionMismatchError
from dbfs_workers.base.text import Printable, printable

_CHARACTERS_SHOWN = 60  # characters of a wrong value in a message


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """Mark of an ``int`` field: a number of at least ``least``."""

    least: int

    def holds(self, value: Any) -> bool:
        """Return whether an integer is such a number."""
        return bool(value >= self.least)

    def __str__(self) -> str:
        return f"a whole number of at least {self.least}"


_MARKS = (Printable, AtLeast)

Natural = Annotated[int, AtLeast(0)]
"""A count, a size or a place."""


def check(message: object, kind: Any, operation: str) -> None:
    """Check that a message is of its class ``kind``, a dataclass, and that every field has a value of its type.

    Raises:
        VersionMismatchError: the message is of another class, or has other fields.
        InvalidOptionError: a field has a value of another type, or a text that is not printable.
    """
    hints = _hints(kind)
    if type(message) is not kind or vars(message).keys() != hints.keys():
        raise VersionMismatchError(
            f"{operation}: the message lacks the fields of {kind.__name__}; is the sender's dbfs of another version?"
        )
    for name, hint in hints.items():
        require(getattr(message, name), hint, f"{operation}: {name}")


def require(value: object, hint: Any, what: str, error: type[DbfsError] = InvalidOptionError) -> None:
    """Raise an error unless a value is of a type, the annotation of a field; ``what`` names it."""
    if not _fits(value, hint):
        length = f" of {len(value):,} characters" if isinstance(value, str) else ""
        found = f"{printable(repr(value), _CHARACTERS_SHOWN)} ({type(value).__name__}{length})"
        raise error(f"{what} must be {_in_words(hint)}, not {found}")


def decoded(kind: Any, value: Any, where: str) -> Any:
    """Return a value of JSON as an object of a type: a dataclass, a tuple of one type, None or a type, or a scalar.

    Raises:
        FormatError: the value is of another type, or an object has other fields; ``where`` is its place.
    """
    arguments, is_record = get_args(kind), dataclasses.is_dataclass(kind)
    hints = _hints(kind) if is_record else {}
    if get_origin(kind) in (Union, types.UnionType):
        return None if value is None else decoded(arguments[0], value, where)
    if get_origin(kind) is tuple:
        require(value, list, where, FormatError)
        return tuple(decoded(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if hints and isinstance(value, dict):
        if value.keys() != hints.keys():
            found = printable(", ".join(value) or "none", _CHARACTERS_SHOWN)
            raise FormatError(f"{where} must have the fields {', '.join(hints)}, not the fields {found}")
        return kind(**{name: decoded(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})
    require(value, kind, where, FormatError)
    return value


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if hint is None:
        return value is None
    if origin is Annotated:
        return all(mark.holds(value) if isinstance(mark, _MARKS) else _fits(value, mark) for mark in arguments)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_fits(one, arguments[0]) for one in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if hint in (int, float):
        # NumPy's numbers count, a bool does not.
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    kind = _class_of(origin or hint)
    if not isinstance(value, kind):
        return False
    # A value may be of a class that derives from the field's.
    kind = kind if dataclasses.is_dataclass(kind) else type(value)
    return not dataclasses.is_dataclass(kind) or _fields_fit(value, kind)


def _class_of(kind: Any) -> Any:
    """Return the class behind an alias: from NumPy 2.5 and Python 3.12 on, ``NDArray`` is one."""
    while hasattr(kind, "__value__"):
        kind = get_origin(kind.__value__) or kind.__value__
    return kind


def _fields_fit(value: Any, kind: Any) -> bool:
    hints = _hints(kind)
    return vars(value).keys() == hints.keys() and all(_fits(getattr(value, name), one) for name, one in hints.items())


def _in_words(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join("None" if one is types.NoneType else _in_words(one) for one in get_args(hint))
    marks = [str(mark) for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, _MARKS)]
    return marks[0] if marks else hint.__name__ if isinstance(hint, type) else str(hint)
