"""The same graph written by other libraries, in any format and container, is the same graph in dbfs; so is what is left
of a text that was damaged, or it is refused.

Axes: formats and the libraries that write them x containers; damages of a text.
"""

import bz2
import gzip
import lzma
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import distributed
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs.edges.readers import from_file
from dbfs.edges.writers import write_edges
from dbfs.errors import DbfsError
from tests.support.independent import FORMS, IN_MEMORY, Drawn, Form, Seen, load, read

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda text: pa.compress(text, "zstd", asbytes=True),
}
CONTAINERS = ["file", *PACKERS, "folder", "pattern"]


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """Graphs with an edge at least: some formats say nothing of a graph without one."""
    n = draw(st.integers(2, 6))
    vertex = st.integers(0, n - 1)
    return Drawn(n, draw(st.lists(st.tuples(vertex, vertex), min_size=1, max_size=9)), draw(st.booleans()))


def write(form: Form, drawn: Drawn, folder: Path, container: str) -> str:
    """Write a graph, and return its path."""
    if container in ("folder", "pattern"):
        half = len(drawn.edges) // 2 or 1
        for name, edges in (("a", drawn.edges[:half]), ("b", drawn.edges[half:])):
            if edges:
                form.write(Drawn(drawn.n, edges, drawn.directed), folder / f"{name}{form.suffix}")
        return str(folder if container == "folder" else folder / f"*{form.suffix}")
    path = folder / f"graph{form.suffix}"
    form.write(drawn, path)
    if container in PACKERS:
        packed = path.with_name(path.name + container)
        packed.write_bytes(PACKERS[container](path.read_bytes()))
        path = packed
    return str(path)


def check_form(form: Form, container: str, drawn: Drawn, read_by: Callable[..., Seen | DbfsError]) -> None:
    if (container in PACKERS and not form.packed) or (container in ("folder", "pattern") and not form.several):
        container = "file"
    folder = Path(tempfile.mkdtemp())
    try:
        path = write(form, drawn, folder, container)
        assert read_by(path, **form.load_options(drawn)) == form.expected(drawn)
    finally:
        shutil.rmtree(folder)


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_files_of_other_libraries(client: distributed.Client, form: str, container: str) -> None:
    @settings(max_examples=3)
    @given(graphs())
    def check(drawn: Drawn) -> None:
        check_form(FORMS[form], container, drawn, partial(load, client, ranks=2))

    check()


OUTPUTS = [".mtx", ".graph", ".gr", ".txt", ".csv", ".npz", ".parquet"]


def check_conversion(form: Form, drawn: Drawn, suffix: str) -> None:
    """A conversion has the graph, and ``WriteReport`` tells what it lacks."""
    folder = Path(tempfile.mkdtemp())
    try:
        edges = from_file(write(form, drawn, folder, "file"), **form.load_options(drawn))
        before, out = form.expected(drawn), folder / f"out{suffix}"
        try:
            written = write_edges(edges, out)
        except DbfsError:
            assert (suffix == ".graph" and before.directed) or (suffix == ".txt" and form.named)
            return
        after = read(out)
        if isinstance(after, DbfsError):
            # An edge list without edges.
            assert (written.m, suffix in (".txt", ".csv")) == (0, True)
            return
        first = written.numbered
        numbers = before.ids if first is None else range(first, first + len(before.ids))
        ids = dict(zip(before.ids, numbers, strict=True))
        expected = {
            ids[one]: {ids[end]: hops for end, hops in reached.items()} for one, reached in before.distances.items()
        }
        lone = {one for one in expected if one not in after.distances}
        assert (len(lone), after.directed) == (written.lone, before.directed)
        assert all(expected.pop(one) == {one: 0} for one in lone)
        assert after.distances == expected
        if form.simple or suffix != ".graph":
            assert (after.m, written.left_out) == (before.m, 0)
        else:
            assert written.m + written.left_out == len(drawn.edges)
    finally:
        shutil.rmtree(folder)


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", OUTPUTS)
@pytest.mark.parametrize("examples", [2, pytest.param(20, marks=pytest.mark.full)])
def test_conversions(form: str, suffix: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(graphs())
    def check(drawn: Drawn) -> None:
        check_conversion(FORMS[form], drawn, suffix)

    check()


@pytest.mark.full
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_objects_of_other_libraries(client: distributed.Client, kind: str) -> None:
    @settings(max_examples=4)
    @given(graphs())
    def check(drawn: Drawn) -> None:
        source, options, has_all = IN_MEMORY[kind](drawn)
        named = kind in ("pandas names", "Arrow")
        form = Form("", lambda drawn, path: None, first=0 if has_all else None, named=named)
        if kind not in ("NetworkX", "igraph", "NetworKit"):
            options = {**options, "directed": drawn.directed}
        assert load(client, source, ranks=2, **options) == form.expected(drawn)

    check()


@dataclass(frozen=True)
class Damage:
    """What befalls a text.

    Attributes:
        kind: a line is lost, doubled or exchanged with the first one; a word is moved, lost, doubled, gets a sign, or
            gives way to another.
        line, word, to: where, each modulo the number there is.
        another: the other word.
    """

    kind: str
    line: int
    word: int
    to: int
    another: str

    def of(self, text: str) -> str:
        lines = text.split("\n")
        at = self.line % max(len(lines) - 1, 1)
        if self.kind == "line lost":
            del lines[at]
        elif self.kind == "line doubled":
            lines.insert(at, lines[at])
        elif self.kind == "line first":
            lines[at], lines[0] = lines[0], lines[at]
        else:
            mark = next((mark for mark in ",\t" if mark in lines[at]), " ")
            words = lines[at].split(mark)
            word = self.word % len(words)
            if self.kind == "word moved":
                words.insert(self.to % len(words), words.pop(word))
            elif self.kind == "word lost":
                del words[word]
            elif self.kind == "word doubled":
                words.insert(word, words[word])
            else:
                words[word] = f"-{words[word]}" if self.kind == "sign" else self.another
            lines[at] = mark.join(words)
        return "\n".join(lines)


KINDS = ["line lost", "line doubled", "line first", "word moved", "word lost", "word doubled", "sign", "another"]
PLACES = st.integers(0, 99)
WORDS = st.sampled_from(["0", "1", "2", "5", "00", "1.0", "1e0", "", "x", str(2**63)])
DAMAGES = st.builds(Damage, st.sampled_from(KINDS), PLACES, PLACES, PLACES, WORDS)


def check_damage(form: Form, drawn: Drawn, damage: Damage, read_by: Callable[..., Seen | DbfsError]) -> None:
    """What dbfs reads is what the other program reads, or the graph as it was, or an error of dbfs."""
    assert form.parse is not None
    folder = Path(tempfile.mkdtemp())
    try:
        path = Path(write(form, drawn, folder, "file"))
        whole = path.read_text()
        assert form.parse(whole, drawn.directed) == form.expected(drawn)
        text = damage.of(whole)
        path.write_text(text)
        found = read_by(path, **form.load_options(drawn))
        assert isinstance(found, DbfsError) or found in (form.parse(text, drawn.directed), form.expected(drawn)), text
    finally:
        shutil.rmtree(folder)


TEXTS = [name for name, form in FORMS.items() if form.parse is not None]


@pytest.mark.parametrize("form", TEXTS)
def test_damaged_texts(client: distributed.Client, form: str) -> None:
    @settings(max_examples=3)
    @given(graphs(), DAMAGES)
    def check(drawn: Drawn, damage: Damage) -> None:
        check_damage(FORMS[form], drawn, damage, partial(load, client))

    check()


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("examples", [25, pytest.param(1000, marks=(pytest.mark.full, pytest.mark.long))])
def test_many_damaged_texts(form: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(graphs(), DAMAGES)
    def check(drawn: Drawn, damage: Damage) -> None:
        check_damage(FORMS[form], drawn, damage, read)

    check()


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("examples", [40, pytest.param(200, marks=pytest.mark.long)])
def test_many_graphs(form: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(graphs(), st.sampled_from(CONTAINERS))
    def check(drawn: Drawn, container: str) -> None:
        check_form(FORMS[form], container, drawn, read)

    check()
