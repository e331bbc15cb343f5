"""Any cut of a file holds the same edges. Axes: format x pieces x size of the blocks read."""

import fsspec
import numpy as np
import pytest

from dbfs.edges.readers import from_file, lines
from dbfs.errors import InvalidOptionError
from tests.support.edge_files import read_all, write

RANDOM = np.random.default_rng(3)
N, M = 60, 300
PAIRS = RANDOM.integers(1, N + 1, (M, 2)).tolist()


def metis_text() -> str:
    near: list[set[int]] = [set() for _ in range(N)]
    for u, v in PAIRS:
        if u != v and 20 < u < 50 and 20 < v < 50:
            near[u - 1].add(v)
            near[v - 1].add(u)
    # Vertex 5 is a hub, whose line spans several pieces.
    near[4] = set(range(10, 50))
    for v in near[4]:
        near[v - 1].add(5)
    rows = [" ".join(map(str, sorted(row))) for row in near]
    rows[7:7] = ["% one", "% two"]
    return f"% c\n{N} {sum(map(len, near)) // 2}\n" + "\n".join(rows) + "\n"


TEXTS = {
    "g.mtx": f"%%MatrixMarket matrix coordinate real general\n%\n{N} {N} {M}\n"
    + "".join(f"{u} {v} 0.25\n" for u, v in PAIRS),
    "g.graph": metis_text(),
    "g.txt": "# Nodes: 60 Edges: 300\n# c\n" + "".join(f"{u}\t{v}\r\n" for u, v in PAIRS).rstrip(),
    "bom.csv": "\ufeff" + "".join(f"{u},{v}\n" + "# c\n\n" * (u > 55) for u, v in PAIRS),
    "g.gr": f"c x\np sp {N} {M}\n" + "".join(f"a {u} {v} {u * v}\n" for u, v in PAIRS),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("block", [7, 64, lines.BLOCK_BYTES])
def test_any_cut_reads_the_same(tmp_path, monkeypatch, name, block):
    edges = from_file(write(tmp_path, name, TEXTS[name]))
    whole = read_all(edges)
    assert edges.m in (None, len(whole))
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    counts = []
    for pieces in (1, 2, 7, 40, 10**9):
        per_piece = -(-len(whole) // pieces)
        counts.append(len(edges.cut(per_piece)))
        assert read_all(edges, per_piece) == whole, pieces
    # Without a header, the number of edges is estimated from the length of the first lines.
    assert counts[0] == 1 or edges.m is None
    assert counts == sorted(counts)
    assert counts[2] >= 7
    assert counts[-1] > 40


def test_no_piece_is_as_small_as_a_byte(tmp_path):
    path = write(tmp_path, "g.txt", "1 2\n3 4\n5 6\n")
    assert len(from_file(path).cut(1)) == 3
    with pytest.raises(InvalidOptionError, match="piece_edges is 0"):
        from_file(path).cut(0)


@pytest.mark.parametrize("name", TEXTS)
def test_remote_files(name):
    with fsspec.open(f"memory://{name}", "wb") as file:
        file.write(TEXTS[name].encode())
    edges = from_file(f"memory://{name}")
    assert len(edges.cut(50)) >= 5
    assert read_all(edges, 50) == read_all(edges)
    assert edges.name == f"memory://{name}"


@pytest.mark.parametrize("name", ["a::b.txt", "a*[x]?.txt", "ä b.txt"])
def test_odd_names(tmp_path, monkeypatch, name):
    write(tmp_path, name, "1 2\n")
    monkeypatch.chdir(tmp_path)
    edges = from_file(name)
    monkeypatch.chdir("/")
    assert read_all(edges) == [(1, 2)]
