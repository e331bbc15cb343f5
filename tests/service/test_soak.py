"""Loads and unloads, one after another, leave nothing on the scheduler, on the workers or in the client."""

import functools
import gc
import itertools
import linecache
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import dask
import distributed
import pytest
from dask.utils import key_split

import dbfs
from dbfs.cluster.gang import SPAN
from dbfs.errors import FormatError
from dbfs_workers.base import jit

BOUNDED = ("service._epochs", "dbfs_workers.base.received._hints")
"""Containers with a bound: the oldest entries are dropped, or there is one entry for each type of message."""

MEMORY_OF_A_LOAD = 2048
"""Bytes that a load may leave behind on average: Dask's profiles grow slowly. A group of tasks takes more."""

_seeds = itertools.count(1)


@pytest.fixture
def own() -> Iterator[distributed.Client]:
    """A cluster whose workers are threads of this process, with short logs, which are full early."""
    short = {
        "distributed.admin.low-level-log-length": 50,
        "distributed.admin.log-length": 50,
        "distributed.admin.system-monitor.log-length": 20,
        "distributed.diagnostics.computations.max-history": 5,
    }
    with (
        dask.config.set(short),
        dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None, processes=False, protocol="tcp://") as client,
    ):
        yield client


def load_nameless(client: distributed.Client, folder: Path) -> None:
    with dbfs.load("path:n=100", client=client) as graph:
        assert graph.bfs(0).reached == 100
        assert [result.reached for result in graph.bfs_many([0, 1])] == [100, 100]


def load_other_edges(client: distributed.Client, folder: Path) -> None:
    seed = next(_seeds)
    with dbfs.load(f"kronecker:scale=4,edgefactor={seed},seed1={seed}", client=client) as graph:
        graph.bfs(0)


def load_named(client: distributed.Client, folder: Path) -> None:
    for _ in range(2):
        dbfs.load("star:n=100", client=client, name="soak", replace=True).bfs(0)
    dbfs.open("soak", client=client).unload()


def load_strings(client: distributed.Client, folder: Path) -> None:
    (folder / "edges.csv").write_text("from,to\n" + "".join(f"a{i},a{i + 1}\n" for i in range(50)))
    with dbfs.load(str(folder / "edges.csv"), client=client) as graph:
        assert graph.bfs("a0").reached == 51


def load_nonsense(client: distributed.Client, folder: Path) -> None:
    (folder / "nonsense.txt").write_text("1 2\n3\n")
    with pytest.raises(FormatError):
        dbfs.load(str(folder / "nonsense.txt"), client=client)


def load_living(client: distributed.Client, folder: Path) -> None:
    with dbfs.load("path:n=100", client=client, mutable=True) as graph:
        result = graph.bfs(0, predecessors=True)
        graph.insert_edges([(0, 50)])
        assert result.update().reached == 100


def load_grid(client: distributed.Client, folder: Path) -> None:
    with dbfs.load("path:n=100", client=client, layout="2d") as graph:
        assert graph.bfs(0).reached == 100


def load_for_tasks(client: distributed.Client, folder: Path) -> None:
    with dbfs.load("star:n=100", client=client, order="degree") as graph:
        assert graph.bfs(0, engine="taskgraph").reached == 100


def load_and_validate(client: distributed.Client, folder: Path) -> None:
    with dbfs.load("star:n=100", client=client, keep_edges=True) as graph:
        result = graph.bfs(0)
        result.validate()
        assert len(result.to_pandas()) == 100
        graph.components()


LOADS: tuple[Callable[[distributed.Client, Path], None], ...] = (
    load_nameless,
    load_other_edges,
    load_named,
    load_strings,
    load_nonsense,
    load_living,
    load_grid,
    load_for_tasks,
    load_and_validate,
)


def kept(client: distributed.Client) -> Counter[str]:
    """Count what stays: entries of Dask's tables, and of all containers in dbfs's modules and services, by path."""
    scheduler, workers = client.cluster.scheduler, client.cluster.workers.values()
    found: Counter[str] = Counter()
    for table in ("clients", "tasks", "task_prefixes", "task_groups", "task_metadata"):
        found[f"scheduler.{table}"] = len(getattr(scheduler, table))
    spans = scheduler.extensions["spans"]
    found["spans"] = len(spans.spans) + len(spans.root_spans)
    found |= Counter({f"span {name}": len(listed) for name, listed in spans.spans_search_by_name.items()})
    found["futures"] = len(client.futures)
    for worker in workers:
        found["worker tasks"] += len(worker.state.tasks)
        found["worker data"] += len(worker.data)
        found["spans of metrics"] += len({key[1] for key in worker.digests_total if key[0] == "execute"})
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("dbfs", "dbfs_workers"):
            for attribute, value in vars(module).items():
                count_entries(value, f"{name}.{attribute}", found, seen)
    for server in (scheduler, *workers):
        count_entries(server.plugins["dbfs"], "service", found, seen)
    for memo in BOUNDED:
        del found[memo]
    return found


def count_entries(value: Any, path: str, found: Counter[str], seen: set[int]) -> None:
    """Add the entries of a container, and of containers in objects of dbfs, to those found at the same path."""
    if id(value) in seen or isinstance(value, type | distributed.core.Server):
        return
    seen.add(id(value))
    if isinstance(value, dict | list | set | deque | tuple | WeakKeyDictionary | WeakValueDictionary):
        bounded = isinstance(value, deque) and value.maxlen is not None
        found[path] += 0 if bounded else len(value)
        for item in list(value.values() if hasattr(value, "values") else value):
            count_entries(item, f"{path}[]", found, seen)
    elif isinstance(value, functools._lru_cache_wrapper):
        cached = value.cache_info()
        found[path] += cached.currsize if cached.maxsize is None else 0
    elif type(value).__module__.partition(".")[0] in ("dbfs", "dbfs_workers"):
        for attribute, item in list(getattr(value, "__dict__", {}).items()):
            count_entries(item, f"{path}.{attribute}", found, seen)


def load_one_after_another(client: distributed.Client, folder: Path, numbers: range) -> None:
    """Load the graphs of these numbers, in all ways by turns, and wait until the last one's tasks are forgotten."""
    for number in numbers:
        LOADS[number % len(LOADS)](client, folder)
    wait_until_none(lambda: [*client.futures, *client.cluster.scheduler.tasks])


def wait_until_none(left: Callable[[], object]) -> None:
    """Wait until nothing is left, which may need a collection, and messages that are on their way."""
    for _ in range(100):
        gc.collect()
        if not left():
            return
        time.sleep(0.1)
    assert not left()


@pytest.mark.full
def test_loads_and_unloads_leave_nothing(own: distributed.Client, tmp_path: Path) -> None:
    load_one_after_another(own, tmp_path, range(len(LOADS)))
    # From the first loads stay the span of dbfs and the prefixes of its tasks.
    before = kept(own)
    assert before["span ('dbfs',)"] == 1
    load_one_after_another(own, tmp_path, range(len(LOADS), 3 * len(LOADS)))
    wait_until_none(lambda: kept(own) - before)


@pytest.mark.long
@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_thousand_loads_leave_nothing(
    own: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise kernels that run as Python at first are loaded on the way, and keep what was compiled.
    monkeypatch.setattr(jit, "_COMPILED_AFTER", -1.0)
    tracemalloc.start()
    try:
        load_one_after_another(own, tmp_path, range(200))
        before, memory = kept(own), traced_memory()
        load_one_after_another(own, tmp_path, range(200, 1000))
        wait_until_none(lambda: kept(own) - before)
        assert (traced_memory() - memory) / 800 < MEMORY_OF_A_LOAD
    finally:
        tracemalloc.stop()
    assert len(own.cluster.scheduler.extensions["spans"].spans[SPAN].groups) < 200


def traced_memory() -> int:
    """Return the bytes of Python's objects, without two caches that end by themselves.

    Dask keeps the names of many keys, and the source files of lines that its profiles have seen.
    """
    key_split.cache_clear()
    linecache.clearcache()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
