"""Random edges written in each format, with random blanks, comments and line ends, are read back unchanged."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs.edges.readers import from_file
from tests.support.edge_files import PACKERS, read_all

BLANKS = st.sampled_from([" ", "  ", "\t", " \t", "\t \t"])
GAPS = {"\t": st.sampled_from([" ", "   ", "\t", " \t "]), ",": st.sampled_from([",", " ,", ", "]), ";": st.just(";")}
NOISE = {"%": ["% c 1 2", "", "  ", "%"], "#": ["# 1 2", "// x", "%1,2", "", " "], "c": ["c 1 2", "c", "", "\t"]}


def finish(draw: st.DrawFn, header: list[str], rows: list[str], noise: list[str]) -> bytes:
    """Lines with noise between them. Each has one of the line ends, and the last one may have none."""
    lines = list(header)
    for row in rows:
        lines += draw(st.lists(st.sampled_from(noise), max_size=1)) if noise else []
        lines.append(draw(st.sampled_from(["", " "])) + row + draw(st.sampled_from(["", "  ", "\t"])))
    text = "".join(line + draw(st.sampled_from(["\n", "\r\n"])) for line in lines)
    # A blank vertex line exists only by its line end.
    return (re.sub(r"\r?\n$", "", text) if lines[-1].strip() and rows and draw(st.booleans()) else text).encode()


@st.composite
def one_based(draw: st.DrawFn) -> tuple[str, bytes, list[tuple[int, int]]]:
    n = draw(st.integers(1, 9) | st.just(2**40))
    pairs = draw(st.lists(st.tuples(st.integers(1, n), st.integers(1, n)), max_size=20))
    kind = draw(st.sampled_from(["tw", "sp", "pattern", "real", "integer"]))
    weights = {"tw": [""], "sp": [" 7", "\t-3"], "pattern": [""], "real": [" 1.5", " -2e-9"], "integer": [" 3", " 40"]}[
        kind
    ]
    lead = "a" + draw(BLANKS) if kind == "sp" else ""
    rows = [f"{lead}{u}{draw(BLANKS)}{v}{draw(st.sampled_from(weights))}" for u, v in pairs]
    if kind in ("tw", "sp"):
        return "g.gr", finish(draw, ["c", f"p {kind} {n} {len(pairs)}"], rows, NOISE["c"]), pairs
    banner = f"%%MatrixMarket matrix coordinate {kind} general"
    return "g.mtx", finish(draw, [banner, "% c", f"{n} {n} {len(pairs)}"], rows, NOISE["%"]), pairs


@st.composite
def edge_list(draw: st.DrawFn) -> tuple[str, bytes, list[tuple[int, int]]]:
    ids = st.integers(0, 9) | st.integers(0, 2**63 - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=20))
    mark = draw(st.sampled_from(list(GAPS)))
    values = draw(st.integers(0, 2))
    names = ["Source", "Target", "weight", "time"][: 2 + values]
    value = st.sampled_from(["0.5", '"x"', "3", *(['"a,b;c"', ""] if mark != "\t" else [])])
    rows = [f"{u}{draw(GAPS[mark])}{v}" + "".join(mark + draw(value) for _ in range(values)) for u, v in pairs]
    header = draw(st.sampled_from([[], ["# c"], [mark.join(names)], ["", "% c", mark.join(names)]]))
    return "g.txt", finish(draw, header, rows, NOISE["#"]), [(u + 1, v + 1) for u, v in pairs]


@st.composite
def metis(draw: st.DrawFn) -> tuple[str, bytes, list[tuple[int, int]]]:
    n = draw(st.integers(1, 8))
    near: list[list[int]] = [[] for _ in range(n)]
    for u, v in draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20)):
        if u != v:
            near[u].append(v)
            near[v].append(u)
    sizes, weights, edge_weights = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    ncon = draw(st.integers(1, 3)) if weights else 0
    header = f"{n} {sum(map(len, near)) // 2} {int(sizes)}{int(weights)}{int(edge_weights)}" + f" {ncon}" * weights
    rows = []
    for row in near:
        words = [str(draw(st.integers(0, 99))) for _ in range(sizes + ncon)]
        for v in row:
            words += [str(v + 1)] + ["7"] * edge_weights
        rows.append("".join(word + draw(BLANKS) for word in words))
    text = finish(draw, ["% c", header], rows, [])
    text = text.replace(b"\n", b"\n% 1 2\n", draw(st.integers(0, 3)))
    return "g.graph", text, [(u + 1, v + 1) for u, row in enumerate(near) for v in row]


@pytest.mark.parametrize(
    "kind",
    [one_based, *(pytest.param(kind, marks=pytest.mark.full) for kind in (edge_list, metis))],
    ids=lambda kind: kind.__name__,
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from(list(PACKERS)), piece_edges=st.integers(1, 9))
def test_any_edges_written_in_a_format_come_back(tmp_path: Path, kind, data, suffix, piece_edges):
    name, text, pairs = data.draw(kind())
    path = tmp_path / (name + suffix)
    path.write_bytes(PACKERS[suffix](text))
    edges = from_file(path)
    assert read_all(edges, piece_edges) == [(u - 1, v - 1) for u, v in pairs]
    assert edges.m in (None, len(pairs))
