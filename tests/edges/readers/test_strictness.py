"""The fast parsers refuse all that the line-by-line parsers refuse, and read the same. Axis: any bytes."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbfs.edges.readers import from_file, lines, metis, pairs
from dbfs.edges.readers.lines import INT64_MAX
from dbfs.edges.readers.source import Source
from dbfs.errors import FormatError
from dbfs_workers.building.reading import Reading, ReadLimits

NOWHERE = Source("/nowhere", None, None)
READING = Reading("/nowhere", ReadLimits(None, 1.0, 60.0), expansion=1)
GRAMMARS = [
    pairs.PairGrammar(b" ", low=1, high=12, extra=0, comments=(b"%",)),
    pairs.PairGrammar(b" ", low=1, high=12, extra=1, comments=(b"%",)),
    pairs.PairGrammar(b" ", low=1, high=12, extra=2, comments=(b"%",)),
    pairs.PairGrammar(b" ", low=1, high=12, prefix=b"a", extra=1, comments=(b"c",)),
    pairs.PairGrammar(b" ", low=1, high=3, right=9, comments=(b"%",)),
    *(
        pairs.PairGrammar(separator, low=0, high=INT64_MAX, extra=extra, tail=tail, comments=(b"#", b"%", b"//"))
        for separator, tail in ((b"", b" "), (b"", b"\t"), (b"\t", b"\t"), (b",", b","), (b";", b";"), (b"|", b"|"))
        for extra in (0, 1, 2)
    ),
]
LAYOUTS = [metis.MetisLayout(4, 9, lead, step) for lead in (0, 1, 2) for step in (1, 2)]
GOOD = ["1 2", "1\t2", "1,2", "1;2", "a 1 2 3", "1 2 3", "1 2 0.5 1e-3", "2 1 -7", "3 , 4 , x", "a 2 1 nan", ""]
GOOD += [
    '1,2,"a,""b"',
    "1 2\t3",
    "1\t2\tx y",
    "1,2,",
    "1|2",
    "1 2 # 3",
    "1 2 {'a': 1}",
    '1;2; "x" ;"y"',
    "1 2 3\t",
    "1,2,,4",
]
ODD = [
    "# 1 2",
    "%",
    "c",
    "c 1 2",
    "//x",
    "1.0 2",
    "1e1 2",
    "+1 2",
    "-1 2",
    '"1" 2',
    "NA 1",
    "1",
    "1 2\r3 4",
    "1\0 2",
    "1\x0b2",
    "1 2\x0b",
    "9223372036854775807 1",
    "9223372036854775808 1",
    "18446744073709551617 1",
    "1\t\t2",
    "1,,2",
    ",1,2",
    "a 1 2 3a4",
    "12abc 1",
    "0x1 2",
    "1_0 2",
    "١ 2",
    "0 1",
    "13 1",
    "\ufeff1 2",
    "a a 1 2",
    "007 1",
    "1 00",
    '1,2,"x',
    '1,2,"x"y',
    '1;2;x"y',
    "1 2#3",
    "1 2 3 {x y}",
    "1 2 {x\0",
    '1\t2\t"x\ty"\t3',
    "1\t2\t\t",
]

line = st.sampled_from(GOOD) | st.sampled_from(ODD) | st.text(alphabet='0123 \t,;|#%{ac.-+e"/\r\0', max_size=8)
texts = st.lists(st.tuples(line, st.sampled_from(["\n", "\r\n", " \n"])), min_size=1, max_size=5).map(
    lambda lines: "".join(text.replace("\n", "") + end for text, end in lines).encode()
)
# Few kinds of lines, often repeated, so that numbers of values and lines agree by chance.
alike = st.lists(st.sampled_from(GOOD + ODD), min_size=1, max_size=2).flatmap(
    lambda kinds: st.lists(st.sampled_from([*kinds, "", "1;2;3;4", "1 2 3 4"]), min_size=1, max_size=8).map(
        lambda rows: "".join(row + "\n" for row in rows).encode()
    )
)


@pytest.mark.full
@pytest.mark.parametrize(
    "grammar", GRAMMARS, ids=lambda grammar: f"{grammar.separator!r}{grammar.tail!r}{grammar.extra}"
)
@settings(max_examples=50, deadline=None)
@given(block=texts | alike)
@example(block=b"a 1 2 3a4\n" * 3)
@example(block=b"a 1 2 3a4\n" * 3 + b"\n")
@example(block=b"1 2\n1 2 3 4\n\n")
@example(block=b"1,2\n1,2,3,4\n \n")
@example(block=b"1;2\n1;2;3;4\n\r\n")
@example(block=b"1 2\r3 4\n")
@example(block=b" \n\n")
def test_the_kernel_accepts_the_lines_that_python_accepts(grammar, block):
    fast = pairs.parse_block(block, grammar)
    try:
        slow = [pairs.parse_line(text, grammar) for text in block.split(b"\n")[:-1]]
    except pairs.LineError:
        assert fast is None
        return
    listed = [pair for pair in slow if pair is not None]
    if fast is None:
        assert any(INT64_MAX in pair for pair in listed)
    else:
        assert list(zip(fast[0].tolist(), fast[1].tolist(), strict=True)) == listed


@pytest.mark.usefixtures("uncounted_lines")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.lead}-{layout.step}")
@settings(max_examples=150, deadline=None)
@given(block=texts | alike, vertex=st.integers(0, 6))
@example(block=b"\n \n", vertex=0)
def test_the_metis_kernel_accepts_the_lines_that_python_accepts(layout, block, vertex):
    fast = metis.parse_block(block, vertex, layout)
    try:
        slow = metis.parse_lines(NOWHERE, 0, block, vertex, layout, READING)
    except FormatError:
        assert fast is None
        return
    assert fast is not None
    assert [part.tolist() for part in fast] == [part.tolist() for part in slow]


@pytest.fixture(scope="module")
def uncounted_lines():
    """Replace the count of lines: the tests' source has no file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "count_lines", lambda *_: 0)
        yield


@pytest.mark.parametrize("value", ["9223372036854775808", "18446744073709551617", "99999999999999999999"])
def test_an_id_past_64_bits_is_no_other_id(tmp_path: Path, value: str) -> None:
    """2**64 + 1 would be 1 in 64 bits."""
    path = tmp_path / "edges.txt"
    path.write_text(f"0 1\n1 {value}\n")
    with pytest.raises(FormatError, match=f"line 2.*{value}"):
        for piece in from_file(path).cut(1):
            piece.read()
