"""``dbfs generate`` and ``dbfs convert``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbfs.cli import main
from dbfs.edges.generate import corpus, kronecker
from dbfs.edges.readers import from_file


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_generate(tmp_path: Path) -> None:
    out = tmp_path / "kronecker.mtx.gz"
    answer = invoke("generate", "kronecker:scale=8", "-o", out)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith(f"{out}: 256 vertices, 4,096 undirected edges, ")
    found = from_file(out)
    assert (found.n, found.m, found.directed) == (256, kronecker(8).m, False)


@pytest.mark.parametrize("arguments", [("corpus:kkt_power", "--scale-down", 256), ("corpus:kkt_power,scale-down=256",)])
def test_generate_a_corpus_graph(tmp_path: Path, arguments: tuple[object, ...]) -> None:
    answer = invoke("generate", *arguments, "-o", tmp_path / "power.gr")
    assert answer.exit_code == 0, answer.output
    found, expected = from_file(tmp_path / "power.gr"), corpus("kkt_power", 256)
    assert (found.n, found.m) == (expected.n, expected.m)


def test_convert(tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("# Directed graph\n7 3\n3 3\n3 7\n")
    answer = invoke("convert", edges, tmp_path / "edges.mtx")
    assert answer.exit_code == 0, answer.output
    assert "2 vertices, 3 directed edges" in answer.stdout
    assert (tmp_path / "edges.mtx").read_text().splitlines()[2:] == ["2 2 3", "2 1", "1 1", "1 2"]
    answer = invoke("convert", edges, tmp_path / "edges.graph", "--undirected", "--format", "edge-list")
    assert answer.exit_code == 0, answer.output
    assert "2 vertices, 1 undirected edge, " in answer.stdout
    assert "\nleft out: 2 x self-loops and duplicates; .mtx, .gr and .parquet keep them\n" in answer.stdout
    assert (tmp_path / "edges.graph").read_text().splitlines()[1:] == ["2 1", "2", "1"]


def test_the_options_of_a_reader(tmp_path: Path) -> None:
    names, marks = tmp_path / "names.txt", tmp_path / "marks.dat"
    names.write_text("ann bob\nbob cy\n")
    marks.write_text("7|3\n3|4\n")
    read = {names: ["--no-header"], marks: ["--format", "edge-list", "--sep", "|"]}
    for file, options in read.items():
        answer = invoke("convert", file, tmp_path / "out.mtx", *options)
        assert answer.exit_code == 0, answer.output
        assert "3 vertices, 2 undirected edges" in answer.stdout
        answer = invoke("estimate", file, "--ranks", 1, "--vertices", 3, *options)
        assert answer.exit_code == 0, answer.output
        assert invoke("convert", file, tmp_path / "out.mtx").exit_code == 2
    answer = invoke("run", names, "--from", "ann", "--to", "cy", *read[names])
    assert answer.stdout.endswith("path: 2 edges: ann bob cy\n"), answer.output
    matrix = tmp_path / "two.mtx"
    matrix.write_text("%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 1\n2 3\n")
    assert "5 vertices, 2 undirected" in invoke("convert", matrix, tmp_path / "out.mtx", "--bipartite").stdout
    for option in (["--sep", ","], ["--no-header"], ["--format", "csv"], ["--source-column", "a"]):
        answer = invoke("run", "path:n=5", "--source", 0, *option)
        assert answer.exit_code == 2
        assert "path:n=5 is a generator's spec; options such as" in answer.stderr


def test_vertices_without_edges_of_an_adjacency_list(tmp_path: Path) -> None:
    file = tmp_path / "a.adjlist"
    file.write_text("1 2\n2\n7\n")
    answer = invoke("convert", file, tmp_path / "out.mtx")
    assert "3 vertices, 1 undirected edge" in answer.stdout
    assert (tmp_path / "out.mtx").read_text().splitlines()[2:] == ["3 3 1", "2 1"]


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,since,whom\nbob,1,carol\nalice,2,bob\n")
    ends = ["--source-column", "who", "--target-column", "whom"]
    answer = invoke("convert", tmp_path / "a.csv", tmp_path / "a.gr", *ends)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.splitlines()[1:] == [
        "left out: 2 x since",
        "ids: numbers from 1 on stand for the vertices' ids, in ascending order; .parquet keeps ids",
    ]
    answer = invoke("convert", tmp_path / "a.csv", tmp_path / "a.parquet", *ends)
    assert answer.stdout.splitlines()[1:] == ["left out: 2 x since"]
    answer = invoke("generate", "star:n=9", "-o", tmp_path / "a.txt")
    assert len(answer.stdout.splitlines()) == 1
    found = json.loads(invoke("convert", tmp_path / "a.csv", tmp_path / "b.gr", *ends, "--json").stdout)
    assert (found["values"], found["numbered"], found["lone"]) == ({"since": 2}, 1, 0)


def test_json(tmp_path: Path) -> None:
    out = tmp_path / "star.graph"
    answer = invoke("generate", "star:n=9", "-o", out, "--json")
    found = json.loads(answer.stdout)
    assert found.pop("seconds") > 0
    expected = {"file": str(out), "n": 9, "m": 8, "directed": False, "left_out": 0, "bytes": out.stat().st_size}
    expected |= {"lone": 0, "numbered": 1, "values": {}}
    assert found == expected


def test_convert_onto_itself(tmp_path: Path) -> None:
    """The input file is read to its end before the output file replaces it."""
    file = tmp_path / "edges.txt"
    file.write_text("1 2\n2 3\n")
    assert invoke("convert", file, file).exit_code == 0
    assert file.read_text().splitlines()[-2:] == ["1\t2", "2\t3"]


def test_real_graph(tmp_path: Path, shared_data: Path) -> None:
    answer = invoke("convert", shared_data / "road-NY.gr.xz", tmp_path / "road.graph")
    assert answer.exit_code == 0, answer.output
    assert "264,346 vertices, 365,050 undirected edges, " in answer.stdout
    assert from_file(tmp_path / "road.graph").m == 2 * 365050


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "path:n=5", "-o", "graph.doc"], "the name must end in one of .mtx"),
        (["generate", "path:n=5", "-o", "/no/such/folder/graph.txt"], "there is no folder /no/such/folder"),
        (["generate", "path:n=5"], "Missing option '-o'"),
        (["generate", "pth:n=5", "-o", "x.txt"], "unknown generator 'pth'"),
        (["generate", "path:n=5", "--scale-down", "2", "-o", "x.txt"], "--scale-down is for corpus:NAME"),
        (["generate", "corpus", "--scale-down", "2", "-o", "x.txt"], "name not given"),
        (["generate", "corpus:road", "-o", "x.txt"], "unknown graph 'road'. The graphs: europe.osm, grid5pt.5000"),
        (["generate", "corpus:cage15", "--scale-down", "0", "-o", "x.txt"], "scale_down must be in 1..256, not 0"),
        (["generate", "corpus:cage15,scale-down=2", "--scale-down", "2", "-o", "x.txt"], "scale_down is given twice"),
        (["convert", "no-such-file.txt", "x.mtx"], "no-such-file.txt: no such file"),
        (["convert", __file__, "x.mtx"], "neither the name nor this line identifies the format"),
        (["convert", "in.txt"], "Missing argument 'OUT'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    answer = invoke(*arguments)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.output


@pytest.mark.full
def test_names_in_tables_are_converted_and_traversed(tmp_path: Path) -> None:
    """The way of a table of names: CSV to Parquet and back, to a format that numbers vertices, and a traversal."""
    table, names = tmp_path / "a.csv", ["--source-column", "who", "--target-column", "whom"]
    table.write_text('# Directed graph: x\nwho,since,whom\nbob,1,"car,ol"\nalice,2,bob\n')
    for source, out, options in (
        ("a.csv", "b.parquet", names),
        ("b.parquet", "c.csv", []),
        ("c.csv", "d.tsv.gz", []),
        ("d.tsv.gz", "e.mtx", []),
        ("d.tsv.gz", "e.npz", []),
    ):
        done = CliRunner().invoke(main, ["convert", str(tmp_path / source), str(tmp_path / out), *options])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "e.mtx").read_text().splitlines()[2:] == ["3 3 2", "2 3", "1 2"]
    for name, options in (("a.csv", names), ("d.tsv.gz", [])):
        words = ["run", str(tmp_path / name), "--from", "alice", "--ranks", "2", "--json", *options]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["reached"] == 3
    done = CliRunner().invoke(main, ["convert", str(table), str(tmp_path / "x.txt"), *names])
    assert "an edge list holds integers, and the ids of" in done.output
    done = CliRunner().invoke(main, ["convert", str(table), str(tmp_path / "x.csv"), *(2 * names)])
    assert "the ids of" in done.output and "are tuples; choose .parquet" in done.output
    assert CliRunner().invoke(main, ["convert", str(table), str(tmp_path / "x.parquet"), *(2 * names)]).exit_code == 0
