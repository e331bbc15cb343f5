"""Benchmarks over many graphs: their plans, their figures, and the files that they write."""

import json
from pathlib import Path

import dask.system
import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import dbfs
from benchmarks import plan as plans
from benchmarks.bins import bench_bins
from benchmarks.levels import _in_turns
from benchmarks.plan import find, parse
from benchmarks.rates import CorpusPlan, Frontier, Rates, ScalingPlan, bench_rates, short_name
from benchmarks.runner import Results, read
from benchmarks.updates import bench_repairs, bench_updates
from dbfs.cli import main
from dbfs.edges import generate
from dbfs.errors import DbfsError, MissingFileError, PlanError
from tests.support import oracle

CORPUS = """
graphs: [grid2d:side=6, "uniform:n=60,m=200,directed=true"]
ranks: [2, 1]
directions: [auto]
sources: 2
repeats: 2
"""
SCALING = """
strong: [{name: "[lattice]", graph: grid2d:side=6, ranks: [1, 3]}]
weak: [{name: paths, graphs: {2: path:n=40, 1: path:n=20}}]
directions: [auto, top-down]
sources: 1
repeats: 1
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_plans_that_come_along_are_plans() -> None:
    for name in ("small", "full"):
        corpus, scaling = plans.read(CorpusPlan, find("corpus", name)), plans.read(ScalingPlan, find("scaling", name))
        assert corpus.ranks[0] == 1
        assert {series.kind for series in scaling.series} == {"strong", "weak"}
        assert corpus.backend == scaling.backend == {"small": "cpu", "full": "cuda"}[name]
        assert (
            max(corpus.ranks[-1], *(max(series.graphs) for series in scaling.series)) == {"small": 2, "full": 4}[name]
        )


@pytest.mark.parametrize(
    ("cores", "ranks"), [(1, [1, 2]), (2, [1, 2, 4]), (6, [1, 2, 4, 6, 12]), (8, [1, 2, 4, 8, 16])]
)
def test_ranks_up_to_the_cores_and_beyond(monkeypatch: pytest.MonkeyPatch, cores: int, ranks: list[int]) -> None:
    monkeypatch.setattr(dask.system, "cpu_count", lambda: cores)
    plan = plans.read(ScalingPlan, find("scaling", "cores"))
    assert [list(series.graphs) for series in plan.series] == [ranks, ranks]


def test_a_missing_plan_is_answered_with_the_names_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus-tiny.yaml").write_text(CORPUS, encoding="utf-8")
    monkeypatch.setattr(plans, "_PLANS", tmp_path)
    assert find("corpus", "tiny") == tmp_path / "corpus-tiny.yaml"
    with pytest.raises(MissingFileError, match=r"plan 'small': no such file, and none of dbfs's own \(tiny\)"):
        find("corpus", "small")


def test_a_plan_has_defaults(tmp_path: Path) -> None:
    plan = plans.read(CorpusPlan, written(tmp_path, "graphs: [path:n=5]\nranks: [4, 1]"))
    assert plan == CorpusPlan(graphs=("path:n=5",), ranks=(1, 4), sources=5, repeats=3, directions=("auto",))
    assert (plan.order, plan.in_edges, plan.backend) == ("given", False, "auto")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a mapping of keys to values, not None"),
        ("- 1", r"must be a mapping of keys to values, not \[1\]"),
        ("graphs: [", "not YAML: .*expected the node content"),
        ("graphs: \xff", None),
        ("ranks: [1]\nranks: [2]\ngraphs: [path:n=5]", "the key 'ranks' appears twice.*line 2"),
        ("ranks: [1]", "graphs is missing"),
        ("graphs: [path:n=5]", "ranks is missing"),
        ("graphs: path:n=5\nranks: [1]", "graphs must be a list of at least one item, not 'path:n=5'"),
        ("graphs: []\nranks: [1]", r"graphs must be a list of at least one item, not \[\]"),
        ("graphs: [7]\nranks: [1]", r"graphs\[0\] must be a generator's spec or a file, not 7"),
        ("graphs: [path:n=5, pth:n=5]\nranks: [1]", r"graphs\[1\]: unknown generator 'pth'; did you mean 'path'\?"),
        ("graphs: [path:m=5]\nranks: [1]", r"graphs\[0\]: path: unknown parameter 'm'\. Parameters: n"),
        ("graphs: [no/such.mtx]\nranks: [1]", r"graphs\[0\]: 'no/such.mtx' is neither a generator's spec nor a file"),
        ("graphs: [path:n=5]\nranks: 2", "ranks must be a list of at least one item, not 2"),
        ("graphs: [path:n=5]\nranks: [0]", r"ranks must be a list of whole numbers above 0, such as \[1, 2, 4\]"),
        ("graphs: [path:n=5]\nranks: [true]", "ranks must be a list of whole numbers above 0"),
        ("graphs: [path:n=5]\nranks: [1, 1]", "ranks must be a list of different numbers"),
        ("graphs: [path:n=5]\nranks: [1]\nsources: 0", "sources must be a whole number above 0, not 0"),
        ("graphs: [path:n=5]\nranks: [1]\nrepeats: 1.5", "repeats must be a whole number above 0, not 1.5"),
        ("graphs: [path:n=5]\nranks: [1]\nrepeats: true", "repeats must be a whole number above 0, not True"),
        ("graphs: [path:n=5]\nranks: [1]\norder: random", "order must be one of given, degree, bfs, not 'random'"),
        ("graphs: [path:n=5]\nranks: [1]\nbackend: [cpu]", r"backend must be one of auto, cpu, cuda, not \['cpu'\]"),
        ("graphs: [path:n=5]\nranks: [1]\nin_edges: 1", "in_edges must be true or false, not 1"),
        (
            "graphs: [path:n=5]\nranks: [1]\ndirections: [up]",
            r"directions must be a list of some of auto, top-down, bottom-up, not \['up'\]",
        ),
        (
            "graphs: [path:n=5]\nranks: [1]\nsource: 3",
            "unknown key 'source'; the keys are sources, repeats, directions, strategies, order, in_edges, backend, ",
        ),
    ],
)
def test_a_bad_corpus_plan_says_which_key_and_what_would_be_right(tmp_path: Path, text: str, words: str | None) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(text.encode("utf-8" if words else "latin-1"))
    with pytest.raises(PlanError, match=words or "not YAML: 'utf-8' codec") as caught:
        plans.read(CorpusPlan, path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sources: 1", "strong and weak are missing; give at least one of them, a list of series"),
        ("strong: {name: a}", "strong must be a list, not {'name': 'a'}"),
        ("strong: [5]", r"strong\[0\]: must be a mapping of keys to values, not 5"),
        ("strong: [{graph: path:n=5, ranks: [1]}]", r"strong\[0\]: name is missing"),
        ("strong: [{name: 5, graph: path:n=5, ranks: [1]}]", r"strong\[0\]: name must be a text, not 5"),
        ("strong: [{name: a, ranks: [1]}]", r"strong\[0\]: graph is missing"),
        ("strong: [{name: a, graph: path:n=5, ranks: [1], x: 2}]", r"strong\[0\]: unknown key 'x'; the keys are name,"),
        ("weak: [{name: a, graphs: [path:n=5]}]", r"weak\[0\]: graphs must be a mapping of ranks to graphs, such as"),
        ("weak: [{name: a, graphs: {one: path:n=5}}]", r"weak\[0\]: graphs must be a mapping of ranks to graphs"),
        ("weak: [{name: a, graphs: {1: path:n=x}}]", r"weak\[0\]: graphs\.1: path: n must be an integer"),
        ("weak: [{name: a, graphs: {1: path:n=5}}]\nstrng: []", "unknown key 'strng'; the keys are .*, strong, weak"),
    ],
)
def test_a_bad_scaling_plan_says_which_key_and_what_would_be_right(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        assert plans.read(ScalingPlan, written(tmp_path, text)).series


def kept_and_discovered(n: int, p: int, neighbours: list[list[int]], source: int) -> tuple[int, int]:
    """Vertices kept after filtering, and discovered: a rank keeps a vertex the first time that it meets the vertex."""
    met: list[set[int]] = [set() for _ in range(p)]
    met[source % p].add(source)
    reached, frontier, kept = {source}, {source}, 0
    while frontier:
        sent = []
        for vertex in frontier:
            for other in neighbours[vertex]:
                if other not in met[vertex % p]:
                    met[vertex % p].add(other)
                    sent.append(other)
        kept += len(sent)
        frontier = set(sent) - reached
        reached |= frontier
        for vertex in sent:
            met[vertex % p].add(vertex)
    return kept, len(reached) - 1


# So few levels that rank 0 leads none of them, because a leader keeps no duplicates.
@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("spec", ["grid2d:side=4", "uniform:n=90,m=400,directed=true", "path:n=8"])
def test_redundant_and_inspected_work(client: distributed.Client, spec: str, ranks: int) -> None:
    edges = generate.parse(spec)
    src, dst = (np.concatenate(side) for side in zip(*(piece.read() for piece in edges.cut(50)), strict=True))
    neighbours: list[list[int]] = [[] for _ in range(edges.n or 0)]
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        neighbours[u].append(v)
        if not edges.directed:
            neighbours[v].append(u)
    plan = CorpusPlan(graphs=(spec,), ranks=(ranks,), sources=2, repeats=1, directions=("top-down",), backend="cpu")
    (rates,) = bench_rates(client, plan, print)
    with dbfs.load(spec, client=client, ranks=ranks) as graph:
        sources = graph.sample_sources(2)
        depth = sum(graph.bfs(source).depth for source in sources) / 2
    counts = [kept_and_discovered(len(neighbours), ranks, neighbours, source) for source in sources]
    assert rates.redundancy == sum(kept for kept, _ in counts) / sum(found for _, found in counts)
    assert rates.inspected == 1
    assert rates.depth == depth
    assert (rates.n, rates.m, rates.ranks) == (len(neighbours), sum(map(len, neighbours)), ranks)


def test_the_corpus_measures_each_graph_on_each_number_of_ranks(
    client: distributed.Client, tmp_path: Path, leaves_nothing: None
) -> None:
    plan = plans.read(CorpusPlan, written(tmp_path, CORPUS))
    begun: list[str] = []
    frontiers: list[Frontier] = []
    saved = tmp_path / "saved.json"
    with Results("corpus", saved) as results:
        rates = results.take("rates", bench_rates(client, plan, begun.append, frontiers), "Rates")
        results.take("frontiers", frontiers, lambda _: ())
    grid, uniform = plan.graphs
    assert begun == ["grid2d:side=6, 1 rank", "grid2d:side=6, 2 ranks", f"{uniform}, 1 rank", f"{uniform}, 2 ranks"]
    assert [(one.graph, one.ranks) for one in rates] == [(g, p) for g in (grid, uniform) for p in (1, 2)]
    assert {one.direction for one in rates} == {"auto"}
    assert rates[0].speedup == 1
    assert rates[1].speedup == rates[1].distance_mteps / rates[0].distance_mteps
    found = read(saved, {"corpus": {"rates": Rates, "frontiers": Frontier}})
    assert (found["rates"], found["frontiers"]) == (rates, frontiers)
    assert [frontier.graph for frontier in frontiers] == [grid, uniform]
    for frontier in frontiers:
        edges = generate.parse(frontier.graph)
        src, dst = (np.concatenate(side) for side in zip(*(piece.read() for piece in edges.cut(50)), strict=True))
        distances = oracle.distances(
            oracle.adjacency(edges.n or 0, src, dst, directed=edges.directed), [frontier.source]
        )
        by_level = np.bincount(distances[distances >= 0])
        assert list(frontier.vertices) == by_level.tolist()
        ends = src if edges.directed else np.concatenate([src, dst])
        degrees = np.bincount(ends, minlength=edges.n or 0)
        assert list(frontier.edges) == [degrees[distances == level].sum() for level in range(by_level.size)]


def test_scaling_measures_each_series(client: distributed.Client, tmp_path: Path) -> None:
    plan = plans.read(ScalingPlan, written(tmp_path, SCALING))
    points = list(bench_rates(client, plan, print))
    assert [(p.kind, p.graph, p.ranks, p.direction) for p in points] == [
        (kind, graph, ranks, direction)
        for kind, graph, ranks in [
            ("strong", "grid2d:side=6", 1),
            ("strong", "grid2d:side=6", 3),
            ("weak", "path:n=20", 1),
            ("weak", "path:n=40", 2),
        ]
        for direction in ("auto", "top-down")
    ]
    for one, more in zip(points[::4] + points[1::4], points[2::4] + points[3::4], strict=True):
        assert (one.speedup, one.efficiency) == (1, 1)
        assert more.speedup == more.distance_mteps / one.distance_mteps
        assert more.efficiency == pytest.approx(more.speedup / more.ranks)


def test_scaling_measures_strategies_beside_the_engine(client: distributed.Client, tmp_path: Path) -> None:
    text = """
        strong: [{name: lattice, graph: grid2d:side=6, ranks: [1, 4]}]
        strategies: [row-scan]
        directions: [auto, top-down]
        layout: 2d
        backend: cpu
        repeats: 1
        sources: 1
    """
    points = list(bench_rates(client, plans.read(ScalingPlan, written(tmp_path, text)), print))
    assert [(p.direction, p.grid) for p in points] == [
        (direction, grid) for grid in ("1x1", "2x2") for direction in ("auto", "top-down", "row-scan")
    ]
    for one, four in zip(points[:3], points[3:], strict=True):
        assert (one.speedup, four.speedup) == (1, four.distance_mteps / one.distance_mteps)


@pytest.mark.full
@pytest.mark.parametrize(
    ("benchmark", "text", "figures"),
    [
        pytest.param("corpus", CORPUS, ["frontiers", "ranks", "rates"], marks=pytest.mark.full),
        ("scaling", SCALING, ["scaling"]),
    ],
)
def test_commands_write_json_and_figures(
    client: distributed.Client, tmp_path: Path, benchmark: str, text: str, figures: list[str]
) -> None:
    out = tmp_path / "new" / "folder"
    arguments = ["bench", benchmark, "--plan", str(written(tmp_path, text)), "--out", str(out)]
    answer = CliRunner().invoke(main, [*arguments, "--scheduler", client.scheduler.address])
    assert answer.exit_code == 0, answer.output
    assert "grid2d:side=6" in answer.stdout
    assert all(len(line) <= 80 for line in answer.stdout.splitlines())
    if benchmark == "scaling":
        assert "[lattice] (strong)" in answer.stdout
    saved = json.loads((out / f"{benchmark}.json").read_text(encoding="utf-8"))
    assert saved["benchmark"] == benchmark
    assert saved["revision"]
    assert sorted(path.stem for path in out.glob("*.png")) == figures
    for path in out.glob("*.png"):
        with Image.open(path) as image:
            # The image is more than its background.
            assert len(image.convert("RGB").getcolors(1 << 20) or []) > 5
    again = tmp_path / "again"
    drawn = CliRunner().invoke(
        main, ["bench", "figures", str(out / f"{benchmark}.json"), "--out", str(again), "--json"]
    )
    assert [Path(path).stem for path in sorted(json.loads(drawn.stdout))] == figures
    for name in figures:
        assert (again / f"{name}.png").read_bytes() == (out / f"{name}.png").read_bytes()
    answer = CliRunner().invoke(main, [*arguments[:-2], "--json", "--scheduler", client.scheduler.address])
    assert set(json.loads(answer.stdout)) == set(saved)


def test_a_wrong_plan_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for arguments, words in (
        (["corpus", "--plan", "huge"], "plan 'huge': no such file, and none of dbfs's own (full, small)"),
        (["scaling", "--plan", str(written(tmp_path, "x: 1"))], "unknown key 'x'; the keys are sources, "),
        (["corpus", "--out", str(tmp_path / "plan.yaml" / "x")], "--out"),
    ):
        answer = CliRunner().invoke(main, ["bench", *arguments])
        assert answer.exit_code == 2
        assert words in answer.stderr
        assert "Traceback" not in answer.output


def test_a_folder_that_takes_no_results_is_refused_before_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(dbfs, "connect", lambda **options: started.append(options))
    for benchmark in ("corpus", "scaling"):
        (tmp_path / f"{benchmark}.json").mkdir()
        answer = CliRunner().invoke(main, ["bench", benchmark, "--out", str(tmp_path)])
        assert answer.exit_code == 1
        assert f"--out {tmp_path / benchmark}.json: can't be written: Is a directory" in answer.stderr
    assert started == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"benchmark": "corpus"}', '{"benchmark": "gpu"}', '{"benchmark": "scaling", "rates": [{}]}'],
)
def test_what_is_no_saved_benchmark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(text)
    for file, words in (
        (path, "saved.json: not the JSON that dbfs bench corpus or scaling or lab saves"),
        (tmp_path / "none.json", "none.json: no such file"),
    ):
        answer = CliRunner().invoke(main, ["bench", "figures", str(file), "--out", str(tmp_path)])
        assert answer.exit_code != 0
        assert words in answer.stderr


def test_without_matplotlib_nothing_is_measured_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    answer = CliRunner().invoke(main, ["bench", "corpus", "--out", str(tmp_path)])
    assert answer.exit_code == 1
    assert "pip install '.[plots]' in a clone of dbfs, or --json here" in answer.stderr


def test_short_names_of_graphs(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text("")
    assert short_name(str(tmp_path / "a.mtx")) == "a.mtx"
    assert short_name("kronecker:scale=3") == "kronecker:scale=3"
    assert short_name("corpus:europe.osm,scale-down=64") == "europe.osm /64"


def test_a_part_of_a_plan_names_its_place() -> None:
    with pytest.raises(PlanError, match="here: must be a mapping"):
        parse(CorpusPlan, 3, "here")
    assert issubclass(PlanError, DbfsError)
    assert issubclass(PlanError, ValueError)


def test_updates_are_measured(client: distributed.Client) -> None:
    (rates,) = bench_updates(client, 8, 500, 1)
    assert min(rates.insert, rates.delete, rates.pages, rates.csr, rates.ratio) > 0
    assert rates.bytes_compact >= 1
    (times,) = bench_repairs(client, "grid2d:side=8", 5, 1, 4)
    assert min(times.repair, times.traversal, times.speedup, times.least_speedup, times.single_50) > 0


@pytest.mark.full
def test_the_command_for_updates() -> None:
    options = ["--scale", "8", "--edges", "500", "--times", "1", "--ranks", "1", "--roads", "path:n=90"]
    done = CliRunner().invoke(main, ["bench", "updates", *options, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["updates"][0]["edges"] == 500
    printed = CliRunner().invoke(main, ["bench", "updates", *options]).output
    assert "bytes of" in printed
    assert "one edge" in printed


def test_the_engine_and_empty_tasks_take_turns(client: distributed.Client) -> None:
    with dbfs.load(dbfs.path(40), client=client, ranks=2) as graph:
        of_engine, of_empty = _in_turns(graph, 8)
        assert len(of_engine) == len(of_empty) == 7
        assert min(of_engine + of_empty) > 0


@pytest.mark.full
def test_levels_over_a_protocol(client: distributed.Client) -> None:
    def connect(protocol: str) -> distributed.Client:
        assert protocol == "tcp"
        return distributed.Client(client.scheduler.address, set_as_default=False)

    costs = list(bench_bins(connect, ["tcp"], ["top-down", "bottom-up"], "kronecker:scale=6", 2, 2))
    depth = len(costs) // 2
    assert [cost.way for cost in costs] == ["top-down"] * depth + ["bottom-up"] * depth
    assert [cost.level for cost in costs] == [*range(depth), *range(depth)]
    assert min(cost.milliseconds for cost in costs) > 0
    assert costs[0].frontier == 1
