"""The compiled parser of lines takes a block just if the pattern takes each of its lines, with the same ids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs.edges.readers.lines import INT64_MAX
from dbfs.edges.readers.pairs import LineError, PairGrammar, parse_block, parse_line

GRAMMARS = {
    "space": PairGrammar(b" ", 1, 12, comments=(b"%",), extra=0),
    "values": PairGrammar(b" ", 0, INT64_MAX, comments=(b"%",), extra=2),
    "arcs": PairGrammar(b" ", 1, 99, prefix=b"a", extra=1, comments=(b"c",)),
    "either": PairGrammar(b"", 0, INT64_MAX, comments=(b"#", b"%", b"//")),
    "blanks": PairGrammar(b"", 0, INT64_MAX, extra=1, comments=(b"#",)),
    "tabs": PairGrammar(b"", 0, INT64_MAX, extra=1, tail=b"\t", comments=(b"#",)),
    "tab": PairGrammar(b"\t", 0, INT64_MAX, extra=1, tail=b"\t", comments=(b"#",)),
    "comma": PairGrammar(b",", 0, INT64_MAX, extra=1, tail=b",", comments=(b"#",)),
    "semicolon": PairGrammar(b";", 0, 9, comments=(b"#",)),
    "sets": PairGrammar(b" ", 1, 2, right=12, comments=(b"%",)),
}
WORDS = [
    "1",
    "2",
    "12",
    "007",
    "0",
    "100",
    str(INT64_MAX),
    str(2**63),
    "9" * 19,
    "1" * 20,
    "x",
    "1.5",
    "-1",
    "a",
    "c",
    "c x",
    '"a"',
    '"',
    "{",
]
MARKS = [
    " ",
    " ",
    "\t",
    "  ",
    ",",
    ";",
    "\n",
    "\n",
    "\r\n",
    "\r",
    "\0",
    "#",
    "%",
    "//",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "é",
]


def by_lines(block, grammar):
    """Parse the block with the line's pattern; None if a line is wrong."""
    try:
        found = [parse_line(line, grammar) for line in block[:-1].split(b"\n")]
    except LineError:
        return None
    return [pair for pair in found if pair is not None]


@pytest.mark.parametrize("name", GRAMMARS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_same_as_the_pattern(name, data):
    grammar = GRAMMARS[name]
    gap, after = (grammar.separator or b"\t").decode(), grammar.tail.decode()
    good = st.tuples(st.sampled_from(WORDS[:6]), st.sampled_from(WORDS[:6])).map(
        lambda pair: f"{'a ' * bool(grammar.prefix)}{pair[0]}{gap}{pair[1]}{(after + '5') * grammar.extra}\n"
    )
    part = st.one_of(good, good, st.sampled_from(WORDS), st.sampled_from(MARKS))
    block = "".join([*data.draw(st.lists(part, max_size=12)), "\n"]).encode()
    expected, found = by_lines(block, grammar), parse_block(block, grammar)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert list(zip(*(ids.tolist() for ids in found), strict=True)) == expected
        assert all(ids.dtype == np.int64 and ids.flags.c_contiguous for ids in found)
