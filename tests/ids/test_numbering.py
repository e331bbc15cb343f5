"""The numbering of ids on the ranks, run in this process, against ``pandas.factorize``; and the tables of ids."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import EdgeInputError, GraphTooLargeError
from dbfs_workers.building import numbering as tasks
from dbfs_workers.ids import codes as id_codes
from dbfs_workers.ids import table as id_table
from dbfs_workers.ids.codes import ascending, divide, encode
from dbfs_workers.ids.table import IdTable, IdType, as_ids, as_python, from_python, joined, ranges_of, sort_keys

INTEGERS = st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 1))
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KINDS: dict[str, tuple[IdType, st.SearchStrategy[Any]]] = {
    "integers": (IdType(), INTEGERS),
    "strings": (IdType(("string",)), STRINGS),
    "tuples": (IdType(("string", "int64"), ("name", "number")), st.tuples(STRINGS, INTEGERS)),
    "tuples of integers": (IdType(("int64", "int64"), ("a", "b")), st.tuples(INTEGERS, INTEGERS)),
    "tuples of strings": (IdType(("string", "string"), ("a", "b")), st.tuples(STRINGS, STRINGS)),
}


class Held:
    """A piece of edges in memory."""

    def __init__(self, src: Any, dst: Any) -> None:
        self.ends = (src, dst)

    def read(self) -> Any:
        return self.ends


def numbered(pieces: list[Held], p: int) -> tuple[list[IdTable], list[Any]]:
    """Run the tasks of ``building.numbering`` in this process; return the tables by rank and the edges by piece."""
    found = [tasks.RankIds() for _ in range(p)]
    coded = [tasks.encode_piece(piece, found[i % p], 1.0, "mine") for i, piece in enumerate(pieces)]
    samples = [tasks.sample_ids(found[rank], [tasks.summarise(one) for one in coded[rank::p]], p) for rank in range(p)]
    splitters = tasks.choose_splitters(samples, p, "mine")
    split = [tasks.split_ids(one, splitters, p) for one in found]
    united = [tasks.unite_ids([one.parts[rank] for one in split], 0.9, "mine") for rank in range(p)]
    counts = [tasks.count_ids(one) for one in united]
    tables = [tasks.make_table(one, counts, rank) for rank, one in enumerate(united)]
    vertices = [
        tasks.find_vertices(split[rank], [tasks.select_places(one, rank) for one in united], counts)
        for rank in range(p)
    ]
    edges = [tasks.make_vertices(coded[i], vertices[i % p]) for i in range(len(pieces))]
    return tables, edges


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_ids_are_numbered_in_ascending_order(kind: str, data: st.DataObject) -> None:
    id_type, strategy = KINDS[kind]
    p = data.draw(st.integers(1, 4))
    pool = data.draw(st.lists(strategy, min_size=1, max_size=20))
    sizes = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))
    ids = data.draw(st.lists(st.sampled_from(pool), min_size=2 * sum(sizes), max_size=2 * sum(sizes)))
    pieces, at = [], 0
    for size in sizes:
        src, dst = ids[at : at + size], ids[at + size : at + 2 * size]
        pieces.append(Held(from_python(src, id_type), from_python(dst, id_type)))
        at += 2 * size
    tables, edges = numbered(pieces, p)
    column = pd.Series(ids, dtype=object).map(lambda one: one if isinstance(one, tuple) else (one,))
    codes, unique = pd.factorize(column, sort=True)
    assert [vertex for src, dst in edges for vertex in (*src.tolist(), *dst.tolist())] == codes.tolist()
    listed = as_python(joined([table.ids for table in tables])) if ids else []
    assert [one if isinstance(one, tuple) else (one,) for one in listed] == list(unique)
    assert [table.first for table in tables] == np.cumsum([0, *map(len, tables)])[:-1].tolist()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_codes_of_parts_are_those_of_all_ids_at_once(data: st.DataObject) -> None:
    """So many integers that the hash table grows, within parts and between them; later ones may pass 2^32."""
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    sizes = data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=6))
    ids = generator.integers(0, data.draw(st.sampled_from([1, 900, 2**32, 2**62])), sum(sizes))
    ids[sizes[0] :] += data.draw(st.sampled_from([0, 2**32 - 1000]))
    parts = np.split(ids, np.cumsum(sizes)[:-1])
    codes, distinct = encode(iter(parts))
    assert [one.size for one in codes] == sizes
    expected, unique = pd.factorize(ids)
    assert np.array_equal(np.concatenate(codes), expected)
    assert np.array_equal(distinct, unique)


def as_strings(numbers: Any) -> Any:
    """Return strings of several lengths, the empty one for 0; some have a word or more in common."""
    return pa.array([("ab\0ü" * (one % 5) + str(one)) if one else "" for one in numbers.tolist()], pa.large_string())


def as_tuples(numbers: Any) -> Any:
    return pa.StructArray.from_arrays([pa.array(numbers % 7), as_strings(numbers)], names=["a", "b"])


@pytest.mark.parametrize("form", [as_strings, as_tuples])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_codes_of_parts_of_text_are_those_of_all_at_once(form: Any, data: st.DataObject) -> None:
    """So many strings that the hash table and the strings' room grow; parts are slices of one array."""
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    sizes = data.draw(st.lists(st.integers(0, 1500), min_size=1, max_size=6))
    ids = generator.integers(0, data.draw(st.sampled_from([1, 900, 2**62])), sum(sizes))
    whole, ends = form(ids), np.cumsum([0, *sizes])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_codes, "_PART_STRINGS", data.draw(st.sampled_from([1, 100, 1 << 14])))
        codes, distinct = encode(whole.slice(start, size) for start, size in zip(ends, sizes, strict=False))
    assert [one.size for one in codes] == sizes
    expected, unique = pd.factorize(ids)
    assert np.array_equal(np.concatenate(codes), expected)
    distinct.validate(full=True)
    assert distinct.to_pylist() == form(unique).to_pylist()


class InBatches(Held):
    """A piece that is read in portions, with lone ids."""

    def __init__(self, src: Any, dst: Any, lone: Any, size: int) -> None:
        super().__init__(src, dst)
        self.lone, self.size = lone, size

    def portions(self) -> Iterator[Any]:
        for at in range(0, max(len(self.ends[0]), 1), self.size):
            yield tuple(end[at : at + self.size] for end in self.ends)

    def lone_ids(self) -> Any:
        return self.lone


def test_a_piece_in_portions_is_numbered_like_one_in_one() -> None:
    src, dst = np.random.default_rng(3).integers(0, 2**40, (2, 5000))
    lone = np.array([7, 2**41, src[0]])
    for convert in (np.asarray, lambda ids: pa.array(ids).cast(pa.large_string())):
        pieces = [InBatches(convert(src), convert(dst), convert(lone), size) for size in (700, 10_000)]
        (tables, (several,)), (others, (one,)) = (numbered([piece], 3) for piece in pieces)
        ids = joined([table.ids for table in tables])
        assert len(ids) == np.unique([*src, *dst, *lone]).size
        assert as_python(ids) == as_python(joined([table.ids for table in others]))
        assert np.array_equal(several, one)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("searched", [0, 1 << 10], ids=["hashed", "searched"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_table_has_its_ids_and_no_others(kind: str, searched: int, data: st.DataObject) -> None:
    id_type, strategy = KINDS[kind]
    ids = sorted(set(data.draw(st.lists(strategy, max_size=30))))
    wanted = data.draw(st.lists(st.one_of(strategy, st.sampled_from(ids or [data.draw(strategy)])), max_size=20))
    table = IdTable(1000, from_python(ids, id_type))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_table, "_SEARCHED", searched)
        found = table.vertices(from_python(wanted, id_type))
    assert found.dtype == np.int64
    assert found.tolist() == [1000 + ids.index(one) if one in ids else -1 for one in wanted]
    present = found[found >= 0]
    assert as_python(table.ids_of(present)) == [one for one in wanted if one in ids]
    for one in wanted:
        around = table.around(one)
        below, above = [other for other in ids if other < one], [other for other in ids if other > one]
        if one not in ids:
            assert set(below[-1:] + above[:1]) <= set(around) <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_ranges_and_keys_follow_the_order(kind: str, data: st.DataObject) -> None:
    id_type, strategy = KINDS[kind]
    ids = data.draw(st.lists(strategy, max_size=20))
    splitters = sorted(data.draw(st.lists(strategy, max_size=4)))
    expected = [sum(splitter <= one for splitter in splitters) for one in ids]
    assert ranges_of(from_python(ids, id_type), splitters).tolist() == expected
    if splitters:
        order, ends = divide(from_python(ids, id_type), splitters)
        assert order.tolist() == sorted(range(len(ids)), key=expected.__getitem__)
        assert ends == [sum(one <= at for one in expected) for at in range(len(splitters) + 1)]
    if id_type.is_tuple:
        keys = sort_keys(from_python(ids, id_type)).to_pylist()
        assert [ids[index] for index in sorted(range(len(ids)), key=keys.__getitem__)] == sorted(ids)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_strings_with_much_in_common_are_sorted_by_their_bytes(data: st.DataObject) -> None:
    part = st.sampled_from(["", "\0", "\0\0", "a", "ab", "aaaaaaa", "aaaaaaaa", "ä", "\U0001f600"])
    seed, alphabet = data.draw(st.integers(0, 2**32)), data.draw(st.lists(part, min_size=2, max_size=4))
    generator = np.random.default_rng(seed)
    words = {"".join(generator.choice(alphabet, generator.integers(0, 20))) for _ in range(300)}
    ids = list(data.draw(st.permutations(sorted(words)))) if len(words) < 40 else sorted(words, key=hash)
    order = ascending(pa.array(["x", *ids], pa.large_string()).slice(1))
    assert [ids[index] for index in order] == sorted(ids, key=str.encode)


def test_every_arrow_type_of_ids_has_one_form() -> None:
    for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.uint64()):
        assert as_python(as_ids(pa.array([3, 1], kind))) == [3, 1]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        ids: Any = as_ids(pa.array(["b", "a"], kind))
        assert (ids.type, as_python(ids)) == (pa.large_string(), ["b", "a"])
    ids = as_ids(pa.array([{"x": 1, "y": "a"}], pa.struct([("x", pa.int16()), ("y", pa.string())])))
    assert IdType.of(ids) == IdType(("int64", "string"), ("x", "y"))
    assert ids.type == IdType.of(ids).arrow
    assert str(IdType.of(ids)) == "tuple (integer, string)"


@pytest.mark.parametrize(
    ("src", "dst", "words"),
    [
        (pa.array([1, None]), pa.array([1, 2]), "1 of 2 ids are null; every edge needs two ids"),
        (pa.array([1.5]), pa.array([1.5]), "ids are integers, strings, or tuples of these, not double"),
        (pa.array([1]), pa.array([-4]), "the id -4 is negative; ids are 0 to 2"),
        (np.array([1]), np.array([1, 2]), "a piece has 1 sources and 2 targets; expected as many"),
        (pa.array(["1"]), pa.array([1]), "sources are string, targets integer; both must be of one type"),
        (
            pa.array([{"a": 1}]),
            pa.array([{"a": None}], pa.struct([("a", pa.int64())])),
            "1 of 1 ids are null",
        ),
    ],
    ids=["null", "float", "negative", "lengths", "types", "null in a tuple"],
)
def test_bad_ids_are_refused(src: Any, dst: Any, words: str) -> None:
    with pytest.raises(EdgeInputError, match=f"^mine: {words}"):
        tasks.encode_piece(Held(src, dst), tasks.RankIds(), 1.0, "mine")  # type: ignore[arg-type]


def test_pieces_of_several_types_are_refused() -> None:
    pieces = [Held(np.array([1]), np.array([2])), Held(pa.array(["a"]), pa.array(["b"]))]
    for p in (1, 2):
        with pytest.raises(EdgeInputError, match="^mine: the ids are integer and string in turn; all must be of one"):
            numbered(pieces, p)
    # A piece without edges has no say in the type, and columns may have other names in other pieces.
    tuples = [pa.StructArray.from_arrays([pa.array([1, 2])], names=[name]) for name in "abc"]
    pieces = [
        Held(np.empty(0, np.int64), np.empty(0, np.int64)),
        Held(tuples[0], tuples[1]),
        Held(tuples[2], tuples[1]),
    ]
    tables, edges = numbered(pieces, 2)
    assert [[end.tolist() for end in pair] for pair in edges] == [[[], []], [[0, 1], [0, 1]], [[0, 1], [0, 1]]]
    assert {IdType.of(table.ids) for table in tables} == {IdType(("int64",), ("a",))}


def test_ids_that_take_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbfs_workers.building.reading.MemoryRoom.free_bytes", lambda room: 100)
    with pytest.raises(GraphTooLargeError, match="mine: numbering its ids takes about"):
        tasks.unite_ids([np.arange(9)], 0.9, "mine")


def test_more_ids_than_codes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_codes, "_MOST_CODES", 512)
    for form in (np.asarray, as_strings, as_tuples):
        assert len(encode([form(np.arange(512))])[1]) == 512
        with pytest.raises(GraphTooLargeError, match="more than 512 distinct ids"):
            encode([form(np.arange(512)), form(np.array([512]))])


def test_the_ranges_are_even() -> None:
    ids = np.random.default_rng(5).integers(0, 2**60, 40_000)
    tables, _ = numbered([Held(part[:1000], part[1000:]) for part in np.split(ids, 20)], 4)
    assert max(map(len, tables)) < 1.3 * 10_000


def test_a_table_of_strings_grows_before_it_is_three_quarters_full() -> None:
    codes = id_codes.codes_for(from_python(["a"], IdType(("string",))))
    assert isinstance(codes, id_codes._StringCodes)
    for start in range(0, 5000, 100):
        part = [str(number) for number in range(start, start + 100)]
        assert codes.encode(from_python(part, IdType(("string",)))).tolist() == list(range(start, start + 100))
        # In a full table the search for a free slot does not end.
        assert 4 * codes.count <= 3 * codes._table.size


def test_a_table_of_small_integers_is_emptied_before_it_takes_large_ones() -> None:
    codes = id_codes.codes_for(np.zeros(0, np.int64))
    assert isinstance(codes, id_codes._IntegerCodes)
    small, large = np.arange(300), np.arange(2**32, 2**32 + 50)
    assert codes.encode(small).tolist() == list(range(300))
    assert codes.encode(np.concatenate([large, small])).tolist() == [*range(300, 350), *range(300)]
    # A slot that stays taken is never freed: from half of the slots on, the search for a free one would not end.
    assert np.count_nonzero(codes._table) == codes.count == 350
