"""The caller's ids and the vertices 0..n-1: checks of ids, and lookups in the tables on the ranks.

A lookup is one message to each rank whose table has some of the ids. The client keeps the latest answers, and never
holds all ids.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs.base.integers import vertex_number
from dbfs.base.records import GraphRecord
from dbfs.cluster.gang import Gang
from dbfs.errors import EdgeInputError, InvalidVertexError, InvalidVertexTypeError
from dbfs.service.asking import ask_ranks
from dbfs_workers.base.text import printable
from dbfs_workers.ids.sequence import IdSequence, value_of
from dbfs_workers.ids.table import (
    ABSENT,
    INTEGER,
    as_ids,
    as_python,
    combined,
    from_python,
    joined,
    ranges_of,
    take,
)
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.reads.messages import FindIds, FindIdsAround, FindLaterIds, FindLaterVertices, FindVertices
from dbfs_workers.serving.rpc import A

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids

MOST_ANSWERS: Final = 4096
"""Answers that the client keeps in each direction."""

_ID_CHARACTERS: Final = 80  # characters of an id in a message
_MOST_ALIKE: Final = 4  # ids in a message that are spelled like an unknown one
_MISSPELLED_CHARACTERS: Final = 32  # characters of an unknown id whose misspellings are all looked up


class IdLookup:
    """The ids of one graph.

    Args:
        record: the service's record of the graph.

    Methods raise ``GraphNotFoundError`` if another client unloaded the graph. ``WorkerLostError``,
    ``SchedulerLostError`` and ``DeadlineExceededError`` are as for ``Gang.gather``.
    """

    def __init__(self, gang: Gang, record: GraphRecord) -> None:
        self._gang = gang
        self._record = record
        self._name = record.name
        self._n = record.stripe.n
        self._ids = record.ids
        # Ids from this vertex on came after the load.
        self._listed = record.ids.count if record.ids.keys else record.stripe.n
        self._partition = record.partition_keys[0]
        self.id_type = record.ids.id_type
        self._vertices: dict[Any, int] = {}
        self._found: dict[int, Any] = {}

    def several(self, given: Any, what: str) -> tuple[int, ...]:
        """Return the vertices of one id, or of several.

        Raises:
            InvalidVertexError: an id is not in the graph.
            InvalidVertexTypeError: an id is not of the type of the graph's ids.
        """
        return tuple(self._of_python([given], what) if self.is_one(given) else self.vertices_of(given, what).tolist())

    def is_one(self, given: Any) -> bool:
        """Return whether a value stands for one id, not for several. Mappings and tables count as one, and fail."""
        # Integers and texts are told without the checks of Python's abstract classes.
        one = isinstance(given, int | str | bytes | Mapping) or hasattr(given, "as_py")
        if one or not isinstance(given, Iterable):
            return True
        return len(getattr(given, "shape", (0,))) != 1 or (self.id_type.is_tuple and _is_one_tuple(given))

    def vertex(self, given: Any, what: str = "id") -> int:
        """Return the vertex of one id; arguments and errors as of ``several``."""
        return int(self._of_python([given], what)[0])

    def vertices_of(self, given: Any, what: str = "id", new: dict[Any, int] | None = None) -> NDArray[np.int64]:
        """Return the vertices of ids, int64.

        Args:
            given: an id, or several: an iterable, a NumPy array, a series, or an Arrow array.
            what: the name of an id in messages.
            new: takes ids that are not in the graph, of tables: each gets the next vertex from n on. None refuses them.

        Errors as for ``several``.
        """
        if self.is_one(given):
            return np.array(self._of_python([given], what, new), np.int64)
        if isinstance(given, IdSequence):
            given = given.to_arrow()
        if _is_arrow(given):
            try:
                return self._of_array(as_ids(combined(given)), what, new)
            except EdgeInputError as error:
                raise InvalidVertexTypeError(f"{what}: {error}") from None
        if hasattr(given, "__array__") and self.id_type.is_integer:
            array = np.asarray(given)
            # A mask is gone by now; the list below has None in its places.
            if array.dtype.kind == "i" and array.size > MOST_ANSWERS and not np.ma.is_masked(given):
                return self._of_array(array.astype(np.int64), what, new)
        listed = given.tolist() if hasattr(given, "tolist") else list(given)
        return np.array(self._of_python(listed, what, new), np.int64)

    def python_ids(self, vertices: Sequence[int]) -> list[Any]:
        """Return the ids of vertices as Python's values; vertices must be 0..n-1."""
        if not self._ids.keys:
            return [vertex + self._ids.first_id for vertex in vertices]
        unknown = [vertex for vertex in dict.fromkeys(vertices) if vertex not in self._found]
        found = {vertex: self._found[vertex] for vertex in vertices if vertex in self._found}
        if unknown:
            new = dict(zip(unknown, as_python(self.ids_of(np.array(unknown, np.int64))), strict=True))
            _keep(self._found, new)
            found.update(new)
        return [found[vertex] for vertex in vertices]

    def ids_of(self, vertices: NDArray[np.int64]) -> Ids:
        """Return the ids of vertices, in their order: an int64 array, or an Arrow array.

        Errors as for ``Graph.ids_of``.
        """
        if vertices.size and not (vertices.min() >= 0 and vertices.max() < self._n):
            wrong = vertices[(vertices < 0) | (vertices >= self._n)][0]
            raise InvalidVertexError(f"there is no vertex {wrong} in {self._name}: vertices are 0..{self._n - 1}")
        if not self._ids.keys:
            return vertices + self._ids.first_id
        late = vertices >= self._listed
        if late.any():
            later = from_python(self._later_ids(vertices[late]), self.id_type)
            places = np.where(late, np.cumsum(late) - 1, len(later) + np.cumsum(~late) - 1)
            return take(joined([later, self.ids_of(vertices[~late])]), places)
        ranks = np.searchsorted(np.array(self._ids.firsts[1:], np.int64), vertices, side="right")
        if vertices.size == 0:
            return from_python([], self.id_type)
        groups = _by_rank(ranks)
        parts = self._answers({rank: FindIds(self._ids.keys[rank], vertices[rows]) for rank, rows in groups.items()})
        if len(groups) == 1:
            return parts[next(iter(groups))]
        back = np.empty(vertices.size, np.int64)
        back[np.concatenate(list(groups.values()))] = np.arange(vertices.size)
        return take(joined([parts[rank] for rank in groups]), back)

    def everything(self) -> Ids:
        """Return the ids of all vertices, in the order of vertices."""
        if not self._ids.keys:
            return np.arange(self._ids.first_id, self._ids.first_id + self._n, dtype=np.int64)
        parts = self._answers({rank: FindIds(key, None) for rank, key in enumerate(self._ids.keys)})
        later = from_python(self._later_ids(np.arange(self._listed, self._n)), self.id_type)
        return joined([*(parts[rank] for rank in range(len(self._ids.keys))), later])

    def _of_array(self, ids: Ids, what: str, new: dict[Any, int] | None) -> NDArray[np.int64]:
        """Return the vertices of ids in the form of ``ids.table.as_ids``."""
        if type(ids) is not type(from_python([], self.id_type)) or len(ids) <= MOST_ANSWERS:
            return np.array(self._of_python(as_python(ids), what, new), np.int64)
        if not self._ids.keys:
            assert isinstance(ids, np.ndarray)
            vertices = ids - self._ids.first_id
            absent = (vertices < 0) | (vertices >= self._n)
        else:
            vertices = self._ask(ids)
            absent = vertices == ABSENT
            if new is not None:
                vertices[absent] = [self._numbered(one, new) for one in as_python(take(ids, np.flatnonzero(absent)))]
                return vertices
        if absent.any():
            raise self._unknown(as_python(take(ids, np.flatnonzero(absent)[:1]))[0], what)
        return vertices

    def has(self, given: Any) -> bool:
        """Return whether the graph has an id. Errors as for ``several``."""
        one = self._checked(given, "id")
        return one in self._found_among([one])

    def _of_python(self, given: Sequence[Any], what: str, new: dict[Any, int] | None = None) -> list[int]:
        """Return the vertices of Python's values."""
        # Calls for each of many ids would keep the ranks waiting; plain integers need none.
        plain = self.id_type.is_integer and set(map(type, given)) <= {int}
        ids = given if plain else [self._checked(one, what) for one in given]
        found = self._found_among(ids)
        absent = list(dict.fromkeys(one for one in ids if one not in found))
        may_come = new is not None and bool(self._ids.keys)
        wrong = [one for one in absent if not (may_come and self._is_possible(one))]
        if wrong:
            raise self._unknown(wrong[0], what)
        if new is not None:
            found.update((one, self._numbered(one, new)) for one in absent)
        return [found[one] for one in ids]

    def _found_among(self, ids: Sequence[Any]) -> dict[Any, int]:
        """Return the vertices of those ids that the graph has, by id."""
        if not self._ids.keys:
            first = self._ids.first_id
            return {one: one - first for one in ids if 0 <= one - first < self._n}
        found = {one: self._vertices[one] for one in ids if one in self._vertices}
        possible = [one for one in dict.fromkeys(ids) if one not in found and self._is_possible(one)]
        if possible:
            answers = self._ask(from_python(possible, self.id_type)).tolist()
            new = {one: at for one, at in zip(possible, answers, strict=True) if at != ABSENT}
            found.update(new)
            _keep(self._vertices, new)
            _keep(self._found, {at: one for one, at in new.items()})
        return found

    def _ask(self, ids: Ids) -> NDArray[np.int64]:
        """Return the vertices of ids by the tables on the ranks, ``ABSENT`` for an unknown id."""
        vertices = np.full(len(ids), ABSENT, np.int64)
        groups = _by_rank(ranges_of(ids, self._ids.splitters))
        messages = {rank: FindVertices(self._ids.keys[rank], take(ids, rows)) for rank, rows in groups.items()}
        for rank, answer in self._answers(messages).items():
            vertices[groups[rank]] = answer
        absent = np.flatnonzero(vertices == ABSENT)
        if absent.size and self._n > self._listed:
            wanted = FindLaterVertices(self._partition, as_python(take(ids, absent)), self._n)
            vertices[absent] = self._answers({0: wanted})[0]
        return vertices

    def _later_ids(self, vertices: NDArray[np.int64]) -> list[Any]:
        """Return the ids of vertices that came after the load."""
        return self._answers({0: FindLaterIds(self._partition, vertices.tolist())})[0] if vertices.size else []

    def _numbered(self, one: Any, new: dict[Any, int]) -> int:
        """Return the vertex of an id that is not in the graph: the next one, if the id is new."""
        return new.setdefault(one, self._n + len(new))

    def _checked(self, one: Any, what: str) -> Any:
        """Return one id as an int, a str or a tuple of these. Errors as for ``several``."""
        one = one.item() if isinstance(one, np.ndarray) and one.ndim == 0 else value_of(one)
        if self.id_type.is_integer:
            return vertex_number(one, what)
        if not self.id_type.is_tuple:
            if isinstance(one, str):
                return str(one)
        elif isinstance(one, tuple | list) and len(one) == len(self.id_type.columns):
            pairs = list(zip(map(value_of, one), self.id_type.columns, strict=True))
            if all(_is_of(part, column) for part, column in pairs):
                return tuple(int(part) if column == INTEGER else str(part) for part, column in pairs)
        shown = printable(repr(one), _ID_CHARACTERS)
        raise InvalidVertexTypeError(
            f"{what} must be a {self.id_type}, as the ids of {self._name} are, not {shown} ({type(one).__name__})"
        )

    def _is_possible(self, one: Any) -> bool:
        """Return whether an id fits the tables: integers of 64 bits, strings without lone surrogates."""
        parts = one if isinstance(one, tuple) else (one,)
        try:
            return all(len(part.encode()) >= 0 if isinstance(part, str) else 0 <= part < 2**63 for part in parts)
        except UnicodeEncodeError:
            return False

    def _unknown(self, one: Any, what: str) -> InvalidVertexError:
        """Return the error for an id that is not in the graph; the message names ids near it."""
        start = f"{what} {printable(repr(one), _ID_CHARACTERS)} is not in {self._name}"
        first = self._ids.first_id
        if self._n == 0:
            return InvalidVertexError(f"{start}: the graph has no vertices")
        if not self._ids.keys:
            noun = "ids" if first else "vertices"
            return InvalidVertexError(f"{start}: {noun} are {first}..{first + self._n - 1}")
        near, words = self._near(one)
        listed = ", ".join(printable(repr(other), _ID_CHARACTERS) for other in near)
        return InvalidVertexError(f"{start}; {words} {listed}" if near else start)

    def _near(self, one: Any) -> tuple[list[Any], str]:
        """Return ids near an unknown one, and what they are: strings spelled alike, else the next below and above."""
        if not self._is_possible(one):
            return [], ""
        slips = [*self._slips(one)] if isinstance(one, str) else []
        rank = int(ranges_of(from_python([one], self.id_type), self._ids.splitters)[0])
        # The next id may be in the next range.
        ranks = range(max(rank - 1, 0), min(rank + 2, len(self._ids.keys)))
        answers = self._answers({rank: FindIdsAround(self._ids.keys[rank], one) for rank in ranks})
        around = [other for rank in ranks for other in answers[rank]]
        alike = difflib.get_close_matches(one, around) if isinstance(one, str) else []
        if slips or alike:
            return list(dict.fromkeys([*slips, *alike]))[:_MOST_ALIKE], "ids near it are"
        below, above = [other for other in around if other < one], [other for other in around if other > one]
        return [*below[-1:], *above[:1]], "next to it in order are" if isinstance(one, str) else "ids near it are"

    def _slips(self, text: str) -> list[str]:
        """Return the strings of the graph that are one slip of a pen away from a text."""
        wanted = list(dict.fromkeys(_misspelled(text)))
        found: list[str] = []
        # So few at a time are looked up by binary searches.
        for first in range(0, len(wanted), 1024):
            some = wanted[first : first + 1024]
            vertices = self._ask(from_python(some, self.id_type))
            found += (some[at] for at in np.flatnonzero(vertices != ABSENT).tolist())
        return found

    def _answers(self, messages: Mapping[int, WorkerMessage[A]]) -> dict[int, A]:
        return ask_ranks(self._gang, messages, f"looking up ids of {self._name}", self._record)


def _misspelled(text: str) -> Iterator[str]:
    """Yield a text in other cases; and with a character left out, exchanged with the next, replaced, or added.

    Source: P. Norvig, "How to Write a Spelling Corrector".
    """
    yield from (text.lower(), text.upper(), text.title(), text.capitalize(), text.strip())
    if len(text) <= _MISSPELLED_CHARACTERS:
        signs = sorted({*text, *text.swapcase(), *string.ascii_letters, *string.digits, *" -_."})
        for at in range(len(text) + 1):
            before, after = text[:at], text[at:]
            if after:
                yield before + after[1:]
                yield before + after[1:2] + after[:1] + after[2:]
                yield from (before + sign + after[1:] for sign in signs)
            yield from (before + sign + after for sign in signs)


def _by_rank(ranks: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return the indices of each rank's elements."""
    return {rank: np.flatnonzero(ranks == rank) for rank in np.unique(ranks).tolist()}


def _keep(kept: dict[Any, Any], new: dict[Any, Any]) -> None:
    """Add answers to those that are kept; drop all earlier ones if they become too many."""
    if len(kept) + len(new) > MOST_ANSWERS:
        kept.clear()
    if len(new) <= MOST_ANSWERS:
        kept.update(new)


def _is_arrow(given: Any) -> bool:
    """Return whether a value is an Arrow array, or a chunked one."""
    return type(given).__module__.partition(".")[0] == "pyarrow" and hasattr(given, "null_count")


def _is_one_tuple(given: Any) -> bool:
    """Return whether a value is one tuple of columns, not a sequence of such tuples."""
    return isinstance(given, tuple) and not any(isinstance(part, tuple | list) for part in given)


def _is_of(part: Any, column: str) -> bool:
    if column == INTEGER:
        return isinstance(part, int | np.integer) and not isinstance(part, bool)
    return isinstance(part, str)
