"""Any bytes in a file end in edges or in a typed error, in bounded memory and time. ``make fuzz`` goes on for long.

Axes: format x how the file comes about (any bytes, lines of a format, a mangled good file) x compression.
"""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs.edges.readers import FORMATS, from_file
from dbfs.errors import DbfsError
from dbfs_workers.ids.table import as_ids
from tests.support.edge_files import PACKERS
from tests.support.memory import reset_peak, status

MOST_BYTES = 300_000_000
MOST_SECONDS = 20.0

HEADERS = [
    b"",
    b"%%MatrixMarket matrix coordinate {} general\n{} {} {}\n",
    b"p tw {} {}\n",
    b"p sp {} {}\n",
    b"{} {}\n",
    b"{} {} {}\n",
    b"{} {} {} {}\n",
    b"# Nodes: {} Edges: {}\n",
    b"\xef\xbb\xbf",
]
NUMBERS = st.one_of(
    st.integers(0, 9), st.integers(0, 2**64), st.sampled_from([10**8, 2**31, 2**63 - 1, -1, 11, 111, "real", "pattern"])
)
IDS = [b"1", b"2", b"10", b"007", b"%d" % (2**63 - 1), b"%d" % 2**63, b"1.5", b"-1", b"+1", b"a", b"p", b"c", b"x"]
MARKS = [b"#", b"%", b"//", b",", b";", b'"', b"\xef\xbb\xbf", b"\xff"]
BLANKS = [b"\t", b" ", b"  ", b"\n", b"\n\n", b"\r\n", b"\r", b"\0"]
TOKENS = st.sampled_from(IDS + MARKS + BLANKS)
LINES = st.lists(TOKENS, max_size=12).map(b"".join)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Bytes of a text: some are repeated often, and some strike a good text."""
    header = draw(st.sampled_from(HEADERS))
    for _ in range(header.count(b"{}")):
        header = header.replace(b"{}", str(draw(NUMBERS)).encode(), 1)
    parts = [header]
    for _ in range(draw(st.integers(0, 5))):
        line = draw(
            st.one_of(LINES, st.sampled_from([b"1 2\n", b"1,2\n", b"a 1 2 3\n", b"2 3\n", b"\n", b" ", b"%\n"]))
        )
        parts.append(line * draw(st.sampled_from([1, 1, 2, 50, 5_000, 100_000])))
    text = b"".join(parts)[: 1 << 20]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.one_of(TOKENS, st.binary(max_size=4))) + text[at + draw(st.integers(0, 2)) :]
    return text


@st.composite
def files(draw: st.DrawFn, suffix: str) -> bytes:
    """Bytes of a file: a compressed stream may be cut, mangled, or followed by another."""
    data = PACKERS[suffix](draw(st.one_of(texts(), st.binary(max_size=300))))
    how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "mangled", "joined"]))
    if how == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    elif how == "mangled":
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(min_size=1, max_size=3)) + data[at + 1 :]
    elif how == "joined":
        data += PACKERS[suffix](draw(LINES)) * draw(st.integers(1, 50))
    return data


@pytest.mark.full
@pytest.mark.fuzz
@pytest.mark.parametrize("format_", [*FORMATS, None], ids=str)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_bytes(tmp_path: Path, format_: str | None, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(list(PACKERS)))
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(data.draw(files(suffix)))
    before, began = reset_peak(), time.monotonic()
    try:
        for piece in from_file(path, format=format_).cut(data.draw(st.sampled_from([1000, 1 << 40]))):
            # as_ids refuses negative integers.
            source, target = map(as_ids, piece.read())
            assert len(source) == len(target)
    except DbfsError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 1000
    assert time.monotonic() - began < MOST_SECONDS
    assert status("VmHWM") - before < MOST_BYTES
