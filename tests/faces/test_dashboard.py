"""The scheduler's page and metrics: by HTTP, in a browser while a run is under way and after one failed, without Bokeh.

The browser is Chromium, driven by Playwright; where there is none its test skips. ``DBFS_SCREENSHOTS`` names a folder
for what it saw.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.base.records import RunProgress
from dbfs.dashboard.trail import Trail, trail_of
from dbfs.errors import DeadlineExceededError, RunCancelledError
from dbfs.service.entries import GraphEntry, QueuedRun
from dbfs.service.history import History
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankReport, RunSummary
from dbfs_workers.search.reports.packing import pack
from tests.support.runs import ENDLESS, Background
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def shown() -> Iterator[distributed.Client]:
    """A cluster with a dashboard."""
    pytest.importorskip("bokeh")
    with dbfs.connect(n_workers=2, processes=False, dashboard_address="127.0.0.1:0") as client:
        # Whoever calls the service first installs it.
        dbfs.graphs(client=client)
        yield client


def get(client: distributed.Client, path: str) -> str:
    with urllib.request.urlopen(client.dashboard_link.removesuffix("/status") + path) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def metrics(client: distributed.Client) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in get(client, "/metrics").splitlines() if line.startswith("dask_dbfs")]
    return {name: float(value) for name, _, value in lines}


def test_the_page_is_among_dasks(shown: distributed.Client) -> None:
    page = get(shown, "/dbfs")
    assert "Bokeh" in page
    assert re.search(r'<a href="dbfs">', page)
    # Dask's own have a link to it, and no harm.
    assert re.search(r'<a href="dbfs">', get(shown, "/status"))


def test_metrics(shown: distributed.Client) -> None:
    pytest.importorskip("prometheus_client")
    before = metrics(shown)
    with dbfs.load("grid2d:side=30", client=shown, name="mesh") as graph:
        results = [graph.bfs(0), *graph.bfs_many([5, 7])]
        with pytest.raises(DeadlineExceededError):
            dbfs.load(f"path:n={ENDLESS}", client=shown).bfs(0, direction="bottom-up", deadline=0.3)
        after = metrics(shown)
        assert after["dask_dbfs_graphs"] >= 1
        assert after['dask_dbfs_graph_vertices{graph="mesh"}'] == 900
        assert after['dask_dbfs_graph_edges{graph="mesh"}'] == graph.m
        assert tuple(after[f'dask_dbfs_graph_bytes{{graph="mesh",rank="{rank}"}}'] for rank in (0, 1)) == graph.nbytes
        assert after['dask_dbfs_graph_ranks_lost{graph="mesh"}'] == 0

        def grown(name: str) -> float:
            return after[f"dask_dbfs_{name}"] - before[f"dask_dbfs_{name}"]

        assert grown('runs_total{outcome="finished"}') == 2
        assert grown('runs_total{outcome="failed"}') == 1
        assert grown("traversals_total") == 3
        assert grown("edges_total") == sum(result.edges for result in results)
        assert grown("traversal_seconds_total") == pytest.approx(sum(result.seconds for result in results))
    with dbfs.load(f"path:n={ENDLESS}", client=shown, name="street") as graph:
        run = Background(graph)
        at = eventually(lambda: metrics(shown), lambda found: 'dask_dbfs_run_level{graph="street"}' in found)
        assert at['dask_dbfs_runs_active{state="running"}'] == 1
        assert at['dask_dbfs_run_bottom_up{graph="street"}'] == 1
        levels = at['dask_dbfs_run_level{graph="street"}']
        eventually(lambda: metrics(shown), lambda found: found['dask_dbfs_run_level{graph="street"}'] > levels)
        dbfs.runs(client=shown)[0].cancel()
        run.join()
    gone = metrics(shown)
    assert gone['dask_dbfs_runs_total{outcome="cancelled"}'] == before['dask_dbfs_runs_total{outcome="cancelled"}'] + 1
    assert not [name for name in gone if "street" in name]


def test_a_living_graph_in_metrics_and_on_the_page(shown: distributed.Client) -> None:
    pytest.importorskip("prometheus_client")

    def row(dask_scheduler: distributed.Scheduler) -> dict[str, Any]:
        from dbfs.dashboard import page

        (graph,) = [
            each for each in dask_scheduler.plugins["dbfs"].records.graphs.values() if each.record.name == "alive"
        ]
        return dict(zip(page._GRAPHS, page._graph_row(graph), strict=True))

    with dbfs.load("grid2d:side=30", client=shown, name="alive", mutable=True) as graph:
        graph.insert_edges([(0, 899), (5, 700)])
        graph.delete_edges([(0, 899)])
        found, listed = metrics(shown), shown.run_on_scheduler(row)
        free = sum(info.free_pages for info in graph.record.infos)
        assert free > 0
        assert found['dask_dbfs_graph_version{graph="alive"}'] == listed["version"] == 2
        assert found['dask_dbfs_graph_updated_total{graph="alive"}'] == listed["changes"] == 3
        rates = (found['dask_dbfs_graph_updates_per_second{graph="alive"}'], listed["changes/s"])
        assert all(0 < rate <= 3 for rate in rates)
        (status,) = (each for each in dbfs.graphs(client=shown) if each.name == "alive")
        assert status.free_pages == free
        assert 0 <= status.changes_per_second <= 3
        assert found['dask_dbfs_graph_free_pages{graph="alive"}'] == listed["free pages"] == free


def trail(dask_scheduler: distributed.Scheduler) -> tuple[str, list[int], list[int], list[int], list[bool]]:
    """On the scheduler: what the page would plot."""
    catalog = dask_scheduler.plugins["dbfs"].records
    found = trail_of(catalog)
    if found is None:
        return "", [], [], [], []
    assert trail_of(catalog, found) is found
    return (found.title, *(part.tolist() for part in (found.level, found.frontier, found.reached, found.bottom_up)))


@pytest.mark.parametrize("n", [1, 2000, 4000, 4500])
def test_plots_of_runs_of_any_depth(client: distributed.Client, n: int) -> None:
    with dbfs.load(f"path:n={n}", client=client, ranks=2, name="plotted") as graph:
        graph.bfs_many([n // 2, 0])
        # The history learns of a leased run a little later.
        found = eventually(
            lambda: client.run_on_scheduler(trail), lambda found: found[0].startswith("plotted, finished, run ")
        )
    _, level, frontier, reached, bottom_up = found
    assert len(level) <= 2000
    # Of more than 4096 levels every second one has a row.
    assert level == list(range(0, n, {1: 1, 2000: 1, 4000: 2, 4500: 4}[n]))
    assert frontier == [1] * len(level)
    assert reached == [at + 1 for at in level]
    assert not any(bottom_up)


def drawn_next(drawn: Trail | None, dask_scheduler: distributed.Scheduler) -> Trail | None:
    """On the scheduler: what a page that is open draws after what it has drawn."""
    return trail_of(dask_scheduler.plugins["dbfs"].records, drawn)


@pytest.mark.full
def test_a_plot_says_how_its_run_ended(client: distributed.Client) -> None:
    drawn: Trail | None = None

    def title() -> str:
        nonlocal drawn
        drawn = client.run_on_scheduler(drawn_next, drawn)
        return "" if drawn is None else drawn.title

    def cancelled(make: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=pytest.raises, args=(RunCancelledError, make), daemon=True)
        thread.start()
        return thread

    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2, name="street") as graph:
        run = Background(graph)
        eventually(title, lambda words: words == "street, under way")
        waiting = cancelled(lambda: graph.bfs(0, direction="bottom-up"))
        first, second = eventually(lambda: dbfs.runs(client=client), lambda runs: len(runs) == 2)
        second.cancel()
        waiting.join(20)
        assert not waiting.is_alive()
        # One that never had its turn has no plot.
        assert title() == "street, under way"
        first.cancel()
        assert isinstance(run.join(), RunCancelledError)
        assert title() == f"street, cancelled, run {first.status.run_id[:8]}"
        assert drawn is not None
        assert drawn.level.size
        # A page that is opened only now shows it, too.
        again = client.run_on_scheduler(drawn_next, None)
        assert (again.title, again.level.tolist()) == (drawn.title, drawn.level.tolist())

        run = Background(graph, deadline=3)
        eventually(title, lambda words: words == "street, under way")
        assert isinstance(run.join(), DeadlineExceededError)
        assert re.fullmatch(r"street, failed, run \w{8}", title())

        many = cancelled(lambda: graph.bfs_many([0, 1], direction="bottom-up"))
        eventually(title, lambda words: words == "street, under way, traversal 1 of 2")
        dbfs.runs(client=client)[0].cancel()
        many.join(20)
        assert re.fullmatch(r"street, cancelled in traversal 1 of 2, run \w{8}", title())

        for options in ({"targets": [9]}, {"targets": [0]}, {"max_depth": 9}, {"max_depth": 0}):
            run_id = graph.bfs(0, **options).run_id
            assert eventually(title, lambda words, run_id=run_id: run_id[:8] in words).startswith(
                "street, stopped at its limit"
            )
    with dbfs.load("path:n=9", client=client, name=f"long, {'x' * 60}") as graph:
        graph.bfs(0, targets=[8], max_depth=20)
        eventually(title, lambda words: re.fullmatch(r"…x{59}, stopped at its limit, run \w{8}", words))
        graph.bfs(0, max_depth=20)
        eventually(title, lambda words: re.fullmatch(r"…x{59}, finished, run \w{8}", words))


def test_a_plot_goes_on_where_looks_are_as_many() -> None:
    async def queued() -> QueuedRun:
        record: Any = SimpleNamespace(name="street", addresses=())
        return QueuedRun(GraphEntry(record), "client", "0123456789", 3, 60.0)

    run = asyncio.run(queued())
    catalog: Any = SimpleNamespace(runs=[run], history=History())

    def seen(finished: int, level: int, frontier: int = 1) -> Trail | None:
        run.note(RunProgress(3, finished, level, "top-down", frontier, level + 1, 0.1 * level))
        return trail_of(catalog, drawn)

    drawn: Trail | None = None
    for traversal in range(3):
        # Where it has not begun there is nothing newer.
        assert seen(traversal, 0, frontier=0) is drawn
        # One look or two make no plot of levels: the plot before stays.
        assert seen(traversal, 20) is drawn
        assert seen(traversal, 30) is drawn
        drawn = seen(traversal, 40)
        assert drawn is not None
        assert (drawn.title, drawn.level.tolist()) == (
            f"street, under way, traversal {traversal + 1} of 3",
            [20, 30, 40],
        )
    for level in range(50, 2100):
        drawn = seen(2, level)
        assert drawn is not None
        assert drawn.level[-1] == level
    assert drawn is not None
    assert len(drawn.level) == 2000
    catalog.runs.clear()
    catalog.history.fail(run, RunCancelledError("by request"))
    drawn = trail_of(catalog, drawn)
    assert drawn is not None
    assert (drawn.title, len(drawn.level)) == ("street, cancelled in traversal 3 of 3, run 01234567", 2000)


def test_many_short_traversals_keep_the_plot_of_levels() -> None:
    async def queued() -> QueuedRun:
        record: Any = SimpleNamespace(name="/somewhere/data/web.mtx", addresses=())
        return QueuedRun(GraphEntry(record), "client", "0123456789", 64, 60.0)

    before, many = asyncio.run(queued()), asyncio.run(queued())
    before.run_id = "9876543210"
    catalog: Any = SimpleNamespace(runs=[before], history=History())
    for level in range(5):
        before.note(RunProgress(64, 0, level, "top-down", 1, level + 1, 0.1 * level))
    catalog.history.fail(before, RunCancelledError("by request"))
    catalog.runs = [many]
    for traversal in range(64):
        # One look at a traversal of a few milliseconds.
        many.note(RunProgress(64, traversal, 3, "bottom-up", 500, 600, 0.25 * traversal))
        drawn = trail_of(catalog)
        assert drawn is not None
        assert drawn.title == "web.mtx, cancelled in traversal 1 of 64, run 98765432"
        assert drawn.level.tolist() == [0, 1, 2, 3, 4]
    catalog.runs = []
    catalog.history.fail(many, RunCancelledError("by request"))
    assert catalog.history.early.run.run_id == "0123456789"
    assert trail_of(catalog, drawn) is drawn


def test_the_plot_of_updates_and_repairs() -> None:
    async def queued(traversals: int) -> QueuedRun:
        record: Any = SimpleNamespace(name="roads", addresses=())
        return QueuedRun(GraphEntry(record), "client", "0123456789", traversals, 60.0)

    catalog: Any = SimpleNamespace(runs=[], history=History())
    update, repair = asyncio.run(queued(0)), asyncio.run(queued(1))
    catalog.history.add_update(update)
    assert trail_of(catalog) is None
    none = CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS))))
    without_levels = RankReport(reached=5, edges=9, depth=4, elapsed=0.1, setup=0.0, packed=pack(none), levels=0)
    catalog.history.add(repair, RunSummary.of([[without_levels], [without_levels]]))
    drawn = trail_of(catalog)
    assert drawn is not None
    assert (drawn.title, drawn.level.size) == ("roads, repaired, run 01234567", 0)


@pytest.fixture
def browser() -> Iterator[Any]:
    """A page of a headless browser."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        at = shutil.which("chromium") or shutil.which("google-chrome") or playwright.chromium.executable_path
        if not Path(at).exists():
            pytest.skip("no Chromium: playwright install chromium, or the system's")
        chromium = playwright.chromium.launch(executable_path=at, args=["--no-sandbox"])
        yield chromium.new_page(viewport={"width": 1180, "height": 1220})
        chromium.close()


def test_the_page_in_a_browser(shown: distributed.Client, browser: Any) -> None:
    wrong: list[str] = []
    browser.on("pageerror", lambda error: wrong.append(str(error)))
    with (
        dbfs.load("kronecker:scale=14", client=shown, name="<b>web</b>") as web,
        dbfs.load(f"path:n={ENDLESS}", client=shown, name="/data/roads/street") as street,
    ):
        for source in web.sample_sources(5):
            web.bfs(source)
        browser.goto(shown.dashboard_link.replace("/status", "/dbfs"))

        def sees(*words: str) -> None:
            eventually(lambda: texts(browser), lambda text: all(word in " ".join(text.split()) for word in words))

        # A name is shown as it is, and not taken for HTML.
        sees("graphs 2 (", "<b>web</b> 16,384", "1.08 MiB", "shared_memory", "web</b>, finished, run")
        sees("● top-down ▲ bottom-up")
        # Of a path the file's name is shown, and the whole of it under the pointer.
        assert browser.get_by_title("/data/roads/street").first.text_content() == "street"
        for width in (1000, 1600):
            browser.set_viewport_size({"width": width, "height": 1000})
            # Four tables and the right one of two plots take the width of the window, and none reaches beyond it.
            at_edge = range(width - 60, width + 1)
            eventually(
                lambda: right_edges(browser),
                lambda edges: max(edges) <= width and sum(edge in at_edge for edge in edges) == 5,  # noqa: B023
            )
        screenshot(browser, "finished")
        run = Background(street)
        sees("runs under way 1 ", "street running 1 of 1", "street, under way")
        before = levels(browser)
        eventually(lambda: levels(browser), lambda now: now > before)
        screenshot(browser, "running")
        waiting = Background(street, waits=True, deadline=5)
        sees("waiting 1 ", "street waiting of 1")
        for listed in dbfs.runs(client=shown):
            listed.cancel()
        run.join()
        waiting.join()
        sees("runs under way 0 ", "street RunCancelledError: rank", "a client called run.cancel()")
        sees("street, cancelled, run")
        with pytest.raises(DeadlineExceededError):
            street.bfs(0, deadline=0.6)
        # The same rows with other values, too.
        runs = {status.name: status.runs for status in dbfs.graphs(client=shown)}["/data/roads/street"]
        sees("street DeadlineExceededError: rank", f"45.78 MiB {runs} ")
        screenshot(browser, "failed")
    sees("graphs 0 (")
    assert wrong == []


def texts(page: Any) -> str:
    """All that is to be read: Bokeh draws into shadow roots; the titles of plots are only in its document."""
    found = page.evaluate(
        """() => {
            const words = [];
            const walk = node => {
                if (node.nodeType === 3) words.push(node.textContent);
                if (node.nodeName === 'STYLE' || node.nodeName === 'SCRIPT') return;
                if (node.shadowRoot) node.shadowRoot.childNodes.forEach(walk);
                node.childNodes.forEach(walk);
            };
            walk(document.body);
            const models = Bokeh.documents.length ? [...Bokeh.documents[0].all_models] : [];
            const titles = models.filter(model => model.type === 'Title').map(model => model.text);
            return words.join(' ') + ' ' + titles.join(' ');
        }"""
    )
    return str(found)


def right_edges(page: Any) -> list[int]:
    """The right edges of tables and plots, in pixels."""
    found = page.evaluate(
        """() => {
            const edges = [];
            const walk = node => {
                const table = node.classList?.contains('slick-viewport-left');
                if (table || node.classList?.contains('bk-Figure')) edges.push(node.getBoundingClientRect());
                if (node.shadowRoot) node.shadowRoot.childNodes.forEach(walk);
                node.childNodes.forEach(walk);
            };
            walk(document.body);
            return edges.map(edge => Math.round(edge.right));
        }"""
    )
    return [int(edge) for edge in found]


def levels(page: Any) -> int:
    """The largest level among the plotted points."""
    found = page.evaluate(
        """() => Math.max(-1, ...[...Bokeh.documents[0].all_models]
            .filter(model => model.type === 'ColumnDataSource' && 'level' in model.data && 'frontier' in model.data
                             && !('run' in model.data))
            .flatMap(model => Array.from(model.data.level)))"""
    )
    return int(found)


def screenshot(page: Any, name: str) -> None:
    folder = os.environ.get("DBFS_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"dbfs-{name}.png")


WITHOUT_BOKEH = """
import asyncio, sys, urllib.request
for missing in ("bokeh", "prometheus_client"):
    sys.modules[missing] = None
import distributed
import dbfs

if __name__ == "__main__":
    with dbfs.connect(n_workers=1, backend="cpu", dashboard_address="127.0.0.1:0") as client:
        with dbfs.load("path:n=9", client=client) as graph:
            print(graph.bfs(0).depth)
        port = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.http_server.port)
        print(urllib.request.urlopen(f"http://127.0.0.1:{port}/dbfs").read().decode())
"""


@pytest.mark.full
def test_without_bokeh_the_service_works_and_says_what_to_install(tmp_path: Path) -> None:
    script = tmp_path / "without_bokeh.py"
    script.write_text(WITHOUT_BOKEH)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    depth, words = done.stdout.strip().splitlines()
    assert depth == "8"
    assert words == "The page needs Bokeh where the scheduler runs: pip install '.[dashboard]' in a clone of dbfs."


def test_with_the_dashboard_off_the_page_says_so(client: distributed.Client) -> None:
    dbfs.graphs(client=client)
    port = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.http_server.port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/dbfs") as answer:
        assert answer.read().startswith(b"This scheduler's dashboard is off: start it with one")
