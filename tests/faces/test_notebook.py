"""What graphs, results and the cluster look like: HTML that is well formed and escaped, plots that show the numbers."""

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace

import distributed
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

import dbfs
from dbfs.assembly import Graph
from dbfs.base.records import GraphStatus, RunProgress, RunStatus
from dbfs.display import plots
from dbfs.display.notebook import html
from dbfs.errors import DbfsError, MissingPackageError
from dbfs.graph import html as templates
from dbfs_workers.features.taskgraph.counts import PHASES
from dbfs_workers.search.reports import TIME_FIELDS

HOSTILE = "</code><script>alert('\"&')</script> ünï"


@pytest.fixture(scope="module")
def graph(client: distributed.Client) -> Iterator[Graph]:
    with dbfs.load("kronecker:scale=10", client=client, name=HOSTILE) as graph:
        yield graph


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    with mpl.rc_context({"backend": "Agg"}):
        yield
        plt.close("all")


def parsed(markup: str) -> ET.Element:
    """The elements; raises where markup is not well formed, as a name with a bracket in it would make it."""
    return ET.fromstring(f"<body>{markup}</body>")


def words(markup: str) -> str:
    return " ".join("".join(parsed(markup).itertext()).split())


def test_a_graph_as_html(graph: Graph, client: distributed.Client) -> None:
    markup = graph._repr_html_()
    assert HOSTILE in "".join(parsed(markup).itertext())
    assert parsed(markup).find(".//script") is None
    text = words(markup)
    assert f"Edges 16,384 undirected edges ({graph.m:,} stored)" in text
    assert f"{graph.self_loops:,} self-loops, {graph.duplicates:,} duplicates" in text
    assert f"mean {graph.m / 1024:,.2f}, largest {graph.max_degree:,}" in text
    assert "4 on cpu, exchange by shared_memory" in text
    assert "State" not in text
    per_rank = [title.text for title in parsed(markup).iter("{http://www.w3.org/2000/svg}title")]
    assert per_rank == [f"rank {rank}: {info.m_local:,}" for rank, info in enumerate(graph.record.infos)]
    with dbfs.load(dbfs.from_arrays([], []), client=client, ranks=1) as empty:
        assert "mean 0.00, largest 0" in words(empty._repr_html_())
    assert "State unloaded" in words(empty._repr_html_())


def test_a_result_as_html(graph: Graph) -> None:
    result = graph.bfs(graph.sample_sources(1)[0])
    markup = result._repr_html_()
    text = words(markup)
    assert HOSTILE in "".join(parsed(markup).itertext())
    assert f"{result.reached:,} of 1,024 vertices" in text
    assert f"Depth {result.depth}" in text
    assert f"Edges {result.edges:,} directed" in text
    assert "resident, 4 ranks on cpu by shared_memory" in text
    assert "of them bottom-up (shaded)" in text
    assert "vertex frontier" in text
    taskgraph = graph.bfs([1, 2, 3, 4, 5, 6, 7], engine="taskgraph", max_depth=2, direction="top-down")
    text = words(taskgraph._repr_html_())
    assert "Sources 1, 2, 3, 4, 5, ... (7 in all)" in text
    assert "shaded" not in text
    assert "Engine taskgraph, 4 ranks" in text
    result.release()
    assert result._repr_html_() == markup


def test_results_without_levels_and_with_thousands(client: distributed.Client) -> None:
    with dbfs.load("path:n=3000", client=client, ranks=2) as path:
        nothing, long = path.bfs(0, max_depth=0), path.bfs(0)
    assert "svg" not in nothing._repr_html_()
    markup = long._repr_html_()
    assert len(markup) < 12_000
    (line, *_) = (e for e in parsed(markup).iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(line.attrib["points"].split()) == 200
    assert "2,999" in words(markup)
    for ax in (nothing.plot_frontier(), nothing.plot_levels()):
        ax.figure.canvas.draw()


def test_the_small_chart_shades_bottom_up_levels(graph: Graph) -> None:
    result = graph.bfs(graph.sample_sources(1)[0], direction="bottom-up")
    chart = ET.fromstring(html.frontier(result.reports))
    shades = [rect for rect in chart.iter("{http://www.w3.org/2000/svg}rect") if "fill-opacity" in rect.attrib]
    assert len(shades) == len(result.reports)
    assert html.frontier(()) == ""
    assert html.bars([5], "edges") == html.bars([0, 0], "edges") == ""
    # Equal to the eye.
    assert html.bars([1000, 1000, 990], "edges") == ""
    assert "rank 2: 900" in html.bars([1000, 1000, 900], "edges")


def test_the_state_of_a_cluster(graph: Graph, client: distributed.Client) -> None:
    state = dbfs.cluster_state(client=client)
    # Graphs of other tests may be there, not yet freed by Python.
    assert [status.name for status in state.graphs].count(HOSTILE) == 1
    assert len(state.workers) == 4
    # Bytes: a process that has imported Dask and Numba takes more than 16 MiB.
    assert all(worker.memory > 2**24 for worker in state.workers)
    assert f"workers: 4, graphs: {len(state.graphs)} (" in repr(state)
    assert "runs under way: 0, waiting: 0>" in repr(state)
    markup = state._repr_html_()
    assert HOSTILE in "".join(parsed(markup).itertext())
    text = words(markup)
    assert "1,024" in text
    assert "No run waits or is under way." in text
    assert all(worker.address in text for worker in state.workers)


def test_runs_are_shown_with_where_they_are() -> None:
    where = RunProgress(3000, 1200, 4, "bottom-up", 5678, 12345, 0.25)
    runs = (
        RunStatus("0123456789abcdef", HOSTILE, "Client-<1>", 3000, True, 0.25, where),
        RunStatus("fedcba9876543210", "web", "Client-2", 1, False, 61.0, None),
    )
    state = dbfs.ClusterState("tcp://<host>:1", 'http://a/?b="c', (), (), runs)
    text = words(state._repr_html_())
    assert f"01234567 {HOSTILE} Client-<1> 1,200 of 3,000 running 250 ms 4, bottom-up 5,678 12,345" in text
    assert "fedcba98 web Client-2 1 waiting 1 min 1 s" in text
    assert "No graph is loaded." in text
    assert "runs under way: 1, waiting: 1>" in repr(state)


def test_the_state_of_a_cluster_takes_the_width_there_is() -> None:
    path = "/a/folder/with/a/long/name/" + 30 * "x"
    graph = GraphStatus(
        name=path,
        n=5,
        m=8,
        ranks=2,
        bytes_per_rank=(35_400_000, 36_000_000),
        backend="cpu",
        exchange="tcp",
        created=0.0,
        runs=3,
        lost=(),
    )
    run = RunStatus("0123456789abcdef", path, "Client-worker-5f0f66ba-c75d-11f1", 1, False, 61.0, None)
    markup = dbfs.ClusterState("tcp://a:1", "", (), (graph,), (run,))._repr_html_()
    cells = {cell.text: cell.attrib.get("style", "") for cell in parsed(markup).iter("td")}
    # Names take several lines, numbers one, and the unit of a range is written once.
    assert "overflow-wrap: anywhere" in cells[path]
    assert "overflow-wrap: anywhere" in cells["Client-worker-5f0f66ba-c75d-11f1"]
    assert "nowrap" in cells["33.76 to 34.33 MiB"]
    assert templates._bytes_range((990_000_000, 1_500_000_000)) == "0.92 to 1.40 GiB"
    assert templates._bytes_range((500, 2000)) == "500 B to 1.95 KiB"


def test_the_frontier_plot_shows_the_levels(graph: Graph) -> None:
    result = graph.bfs(graph.sample_sources(1)[0])
    _, mine = plt.subplots()
    assert result.plot_frontier(ax=mine) is mine
    lines = {line.get_label(): line for line in mine.lines}
    np.testing.assert_array_equal(lines["vertex frontier"].get_ydata(), result.levels["frontier"])
    edges = result.levels["edges"].where(result.levels["edges"] > 0)
    np.testing.assert_array_equal(lines["edge frontier"].get_ydata(), edges)
    assert mine.get_yscale() == "log"
    shaded = [patch.get_extents().transformed(mine.transData.inverted()) for patch in mine.patches]
    within = [any(box.x0 < level < box.x1 for box in shaded) for level in result.levels.index]
    assert within == (result.levels["direction"] == "bottom-up").tolist()


@pytest.mark.full
def test_a_title_names_a_file_without_its_folder(client: distributed.Client) -> None:
    for name, title in (
        ("/home/user/data/web.mtx", "web.mtx"),
        ("s3://bucket/data/web.mtx", "web.mtx"),
        ("data/web.mtx", "data/web.mtx"),
        ("kronecker:scale=3", "kronecker:scale=3"),
    ):
        with dbfs.load("path:n=9", client=client, name=name) as graph:
            result = graph.bfs(0)
            for ax in (result.plot_frontier(), result.plot_levels(), graph.plot_degrees()):
                assert ax.get_title("left").strip() == title


def test_plots_in_a_grid_name_their_axes_once(graph: Graph) -> None:
    result = graph.bfs(graph.sample_sources(1)[0])
    _, axes = plt.subplots(2, 2)
    for ax in axes.flat:
        result.plot_frontier(ax)
    assert [ax.get_xlabel() for ax in axes.flat] == ["", "", "level", "level"]
    assert [ax.get_ylabel() for ax in axes.flat] == ["size of the frontier", "", "size of the frontier", ""]
    # In any order, and only of the same name.
    _, axes = plt.subplots(2, 2)
    result.plot_frontier(axes[1, 1])
    result.plot_frontier(axes[0, 1])
    graph.plot_degrees(axes[1, 0])
    result.plot_frontier(axes[0, 0])
    assert [ax.get_xlabel() for ax in axes.flat] == ["level", "", "degree", "level"]
    assert [ax.get_ylabel() for ax in axes.flat] == ["size of the frontier", "", "vertices", "size of the frontier"]


@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_the_levels_plot_has_each_phase_of_each_rank(graph: Graph, engine: str) -> None:
    result = graph.bfs(graph.sample_sources(1)[0], engine=engine)
    ax = result.plot_levels()
    unit = {"time in µs": 1e6, "time in ms": 1e3, "time in s": 1.0}[ax.get_xlabel()]
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_height() == pytest.approx(0.8)]
    for rank in range(4):
        mine = sum(bar.get_width() for bar in bars if round(bar.get_y() + 0.4) == rank) / unit
        assert mine == pytest.approx(sum(sum(report.phase_seconds[rank].values()) for report in result.reports))
    starts = sorted({round(bar.get_x(), 9) for bar in bars})
    assert starts[0] == 0
    assert ax.get_xlim()[1] == pytest.approx(result.levels["seconds"].sum() * unit)


def test_the_levels_plot_marks_bottom_up_levels(graph: Graph) -> None:
    result = graph.bfs(graph.sample_sources(1)[0])
    ax = result.plot_levels()
    unit = {"time in µs": 1e6, "time in ms": 1e3, "time in s": 1.0}[ax.get_xlabel()]
    ends = result.levels["seconds"].cumsum() * unit
    strips = [tuple(map(float, line.get_xdata())) for line in ax.lines if line.get_linewidth() == 5]
    expected = [
        (ends[level] - seconds * unit, ends[level])
        for level, seconds in result.levels["seconds"].items()
        if result.levels["direction"][level] == "bottom-up"
    ]
    assert strips
    np.testing.assert_allclose(strips, expected)


@pytest.fixture(scope="module", params=["resident", "taskgraph"])
def result(graph: Graph, request: pytest.FixtureRequest) -> dbfs.BFSResult:
    return graph.bfs(graph.sample_sources(1)[0], engine=request.param)


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize(
    ("rows", "columns", "size", "letters"),
    [
        (1, 1, (8, 2.84), 10),
        (1, 1, (6.4, 2), 16),
        (1, 1, (3, 2), 6),
        (2, 2, (9, 4), 10),
        *(
            pytest.param(*row, marks=pytest.mark.full)
            for row in (
                (1, 1, (6.4, 2), 10),
                (1, 1, (2.5, 6), 10),
                (4, 1, (6.4, 7), 10),
                (4, 1, (6.4, 4.8), 10),
            )
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
def test_the_legend_of_the_levels_plot_is_on_no_words_and_no_bars(
    result: dbfs.BFSResult, rows: int, columns: int, size: tuple[float, float], letters: int, layout: str | None
) -> None:
    with mpl.rc_context({"font.size": letters}):
        figure, axes = plt.subplots(rows, columns, figsize=size, layout=layout, squeeze=False)
        for ax in axes.flat:
            result.plot_levels(ax)
    # As it is drawn first, then in windows of other sizes, on finer and coarser screens.
    for scale, dpi in ((1, 100), (1.5, 120), (0.8, 72)):
        figure.set_dpi(dpi)
        figure.set_size_inches(scale * size[0], scale * size[1])
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        # Ticks out of sight are not drawn, and know only how large they were.
        renderer = canvas.get_renderer()
        for ax in axes.flat:
            legend = ax.get_legend()
            assert len(legend.get_texts()) >= 3
            box = legend.get_window_extent()
            assert not overlap(box, ax.bbox)
            words = [ax.xaxis.label, ax.yaxis.label, *(text for text in ax.get_children() if isinstance(text, Text))]
            for each in (ax, *ax.child_axes):
                words += [*each.get_xticklabels(), *each.get_yticklabels()]
            assert {"rank", "level", ax.get_xlabel(), ax.get_title("left")} <= {text.get_text() for text in words}
            for text in words:
                assert not overlap(box, text.get_window_extent(renderer)), (text, scale, dpi)


@pytest.mark.full
def test_the_legend_of_the_levels_plot_has_its_place_in_the_figure(result: dbfs.BFSResult) -> None:
    low = plt.figure(figsize=(6.4, 2), layout="constrained").subplots()
    several = plt.figure(figsize=(6.4, 7), layout="constrained").subplots(4, 1)
    for axes in ([result.plot_levels()], [result.plot_levels(low)], [result.plot_levels(ax) for ax in several]):
        figure = axes[0].figure
        figure.canvas.draw()
        for ax in axes:
            legend = ax.get_legend()
            assert legend is not None
            box = legend.get_window_extent()
            assert figure.bbox.containsx(box.x1)
            assert figure.bbox.containsy(box.y0)
            # In one row, which is as high as its letters.
            assert box.height < 2 * legend.get_texts()[0].get_window_extent().height
            for other in axes:
                around = other.get_tightbbox()
                assert around is not None
                assert other is ax or not overlap(box, around)


def overlap(one: Bbox, other: Bbox) -> bool:
    return bool(one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1)


@pytest.fixture(scope="module")
def long_run(client: distributed.Client) -> Iterator[dbfs.BFSResult]:
    """A result whose levels take equal times. A test that measured them would depend on the machine's load."""
    with dbfs.load("path:n=2000", client=client, ranks=2) as path:
        result = path.bfs(0)
        set_times(result, np.full(2000, 1e-5))
        yield result


def set_times(result: dbfs.BFSResult, seconds: NDArray[np.float64]) -> None:
    """Give the levels these times. Each rank searches in half of the time, and waits in the other half."""
    vars(result)["reports"] = tuple(
        replace(report, seconds=float(time), phase_seconds=({"search": time / 2, "exchange": time / 2},) * 2)
        for report, time in zip(result.reports, seconds, strict=True)
    )
    result.seconds = float(seconds.sum())


def test_long_runs_are_drawn_in_stretches(long_run: dbfs.BFSResult) -> None:
    ax = long_run.plot_levels()
    bars = [patch for patch in ax.patches if patch.get_height() == pytest.approx(0.8)]
    assert len(bars) == 2 * 2 * 32
    assert sum(bar.get_width() for bar in bars) == pytest.approx(2 * 2000 * 1e-2)
    (top,) = ax.child_axes
    # The numbers of 32 stretches would touch each other.
    assert 4 <= len(top.get_xticks()) <= 14
    low, high = long_run.plot_frontier().get_ylim()
    assert high / low >= 10


@pytest.mark.parametrize("slow", [0, 1000, 1999])
def test_a_slow_level_of_a_long_run_has_a_bar_and_a_number_of_its_own(long_run: dbfs.BFSResult, slow: int) -> None:
    # Results are not copied, since each frees its labels.
    result, seconds = object.__new__(dbfs.BFSResult), np.full(2000, 1e-5)
    vars(result).update(vars(long_run))
    seconds[slow] = 0.1
    set_times(result, seconds)
    ax = result.plot_levels()
    start = 1e-2 * slow
    bars = [patch for patch in ax.patches if patch.get_x() == pytest.approx(start)]
    assert [bar.get_width() for bar in bars] == pytest.approx([50, 50])
    (top,) = ax.child_axes
    numbers = {text.get_text(): text for text in top.get_xticklabels()}
    assert numbers[f"{slow:,}"].get_position()[0] == pytest.approx(start + 50)
    assert len({patch.get_x() for patch in ax.patches}) <= 2 * 32
    FigureCanvasAgg(ax.figure).draw()
    boxes = [text.get_window_extent() for text in numbers.values()]
    assert not any(overlap(*pair) for pair in itertools.combinations(boxes, 2))


def test_degrees_on_both_scales(graph: Graph, client: distributed.Client) -> None:
    degrees, counts = graph.degree_counts()
    ax = graph.plot_degrees()
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["of this degree"].get_xdata(), degrees[degrees > 0])
    np.testing.assert_array_equal(lines["of this degree"].get_ydata(), counts[degrees > 0])
    more = [counts[degrees >= degree].sum() for degree in degrees[degrees > 0]]
    np.testing.assert_array_equal(lines["of this degree or more"].get_ydata(), more)
    legend = ax.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == f"{counts[degrees == 0].sum():,} of degree 0 not shown"
    with dbfs.load("grid2d:side=5", client=client) as grid:
        bars = grid.plot_degrees()
    assert [bar.get_height() for bar in bars.patches] == [4, 12, 9]
    with dbfs.load(dbfs.from_arrays([], []), client=client) as empty:
        empty.plot_degrees().figure.canvas.draw()


def test_every_phase_has_a_colour() -> None:
    assert set(plots._PHASES) == {*TIME_FIELDS, *PHASES}


def test_without_matplotlib(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingPackageError, match=r"pip install '\.\[plots\]' in a clone"):
        graph.plot_degrees()


def test_reprs_import_nothing_heavy() -> None:
    code = (
        "import sys; import dbfs; from dbfs.display.notebook import html; from dbfs.graph.html import _environment;"
        "_environment(html.__package__).get_template('graph.html.j2');"
        "print([m for m in ('matplotlib', 'pandas', 'numba', 'scipy', 'IPython') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_mistake_in_a_cell_shows_the_cells_own_lines(client: distributed.Client) -> None:
    """The frames of dbfs and of Dask say nothing that the message does not say."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell()
    with dbfs.load([("alice", "bob"), ("bob", "carol")], client=client) as graph:
        shell.user_ns["graph"] = graph
        with capture_output() as output:
            shell.run_cell("def find(who):\n    return graph.bfs(who)", store_history=True)
            shell.run_cell("1\nfind('alise')", store_history=True)
    assert output.stdout.splitlines()[-3:] == [
        "Cell In[2], line 2: find('alise')",
        "Cell In[1], line 2: return graph.bfs(who)",
        "dbfs_workers.base.errors.InvalidVertexError: source 'alise' is not in pairs; ids near it are 'alice'",
    ]


def test_a_note_and_a_file_beside_the_packages_are_shown() -> None:
    own = f"{dbfs.__path__[0]}_own/find.py"
    with pytest.raises(DbfsError) as caught:
        exec(compile("raise DbfsError('no edges')", own, "exec"))
    caught.value.add_note("read from edges.txt")
    assert caught.value._render_traceback_()[-3:] == [
        f"{own}, line 1: ",
        "dbfs_workers.base.errors.DbfsError: no edges",
        "read from edges.txt",
    ]
