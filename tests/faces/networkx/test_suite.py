"""NetworkX's own tests, with every function that the backend offers run by the backend."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

import dbfs.networkx.backend  # noqa: F401 - offers the functions
from dbfs.networkx.registry import OFFERS

ROOT = Path(__file__).parents[3]

# By part, NetworkX's tests, and the modules of NetworkX whose functions the tests are of.
PARTS = {
    "paths": (
        "algorithms.shortest_paths.tests.test_unweighted algorithms.shortest_paths.tests.test_generic",
        "algorithms.shortest_paths.unweighted algorithms.shortest_paths.generic",
    ),
    "weights": ("algorithms.shortest_paths.tests.test_weighted", "algorithms.shortest_paths.weighted"),
    "traversal": (
        """algorithms.traversal.tests.test_bfs algorithms.tests.test_dag algorithms.tree.tests.test_recognition
        algorithms.bipartite.tests.test_basic""",
        """algorithms.traversal.breadth_first_search algorithms.dag algorithms.tree.recognition
        algorithms.bipartite.basic""",
    ),
    "components": (
        """algorithms.components.tests.test_connected algorithms.components.tests.test_weakly_connected
        algorithms.components.tests.test_strongly_connected algorithms.tests.test_efficiency
        algorithms.tests.test_wiener""",
        """algorithms.components.connected algorithms.components.weakly_connected
        algorithms.components.strongly_connected algorithms.efficiency_measures algorithms.wiener""",
    ),
    "distances": ("algorithms.tests.test_distance_measures", "algorithms.distance_measures"),
    "edge lists": (
        """tests.test_convert tests.test_convert_numpy tests.test_convert_pandas tests.test_convert_scipy
        readwrite.tests.test_edgelist""",
        "convert convert_matrix readwrite.edgelist",
    ),
    "centrality": (
        """algorithms.centrality.tests.test_closeness_centrality algorithms.centrality.tests.test_harmonic_centrality
        algorithms.centrality.tests.test_reaching algorithms.centrality.tests.test_group generators.tests.test_ego
        algorithms.centrality.tests.test_betweenness_centrality""",
        """algorithms.centrality.betweenness algorithms.centrality.closeness algorithms.centrality.harmonic
        algorithms.centrality.reaching algorithms.centrality.group generators.ego""",
    ),
}


# A test of NetworkX with 500 cases: bounds against plain searches on random graphs, by weight too. Each takes 200 loads
# of a graph. Parts have one case.
BOUNDS = "test_use_bounds_on_off_consistency"
ONE_BOUNDS = "0.2-10-0"
MORE_BOUNDS = [f"{density / 5}-{n}-{n % 10}" for density in range(5) for n in range(10, 20)]

# A graph with negative weights, which Dijkstra's algorithm happens to get right, and the backend refuses.
NEGATIVE = "test_zero_cycle_smoke"

# NetworkX tests the first only by others that call its code, and the others with attributes of edges.
UNTESTED = {"generic_bfs_edges", "from_edgelist", "from_scipy_sparse_array", "parse_edgelist"}


def functions_of(part: str) -> set[str]:
    """Return the offered functions of a part's modules that the part's tests call."""
    modules = {f"networkx.{module}" for module in PARTS[part][1].split()}
    originals = {name: nx.utils.backends._registered_algorithms[name].orig_func for name in OFFERS}
    return {name for name, original in originals.items() if original.__module__ in modules} - UNTESTED


def test_every_function_belongs_to_a_part() -> None:
    assert set().union(UNTESTED, *map(functions_of, PARTS)) == OFFERS.keys()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_networkx_passes_its_own_tests(part: str, tmp_path: Path) -> None:
    passed, found = run(PARTS[part][0], f"not {BOUNDS} and not {NEGATIVE} or {ONE_BOUNDS}", tmp_path)
    assert passed > 0
    assert functions_of(part) <= found["ran"].keys()
    # A function leaves a call to NetworkX for a parameter that it refuses, and never after it has begun.
    refusing = {name for name, offer in OFFERS.items() if offer.refused or offer.check or offer.weighed}
    assert found["fell back"].keys() & OFFERS.keys() <= refusing
    assert not found["raised"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_networkx_passes_more_of_its_tests_of_bounds(tmp_path: Path) -> None:
    select = f"{BOUNDS} and ({' or '.join(MORE_BOUNDS)})"
    passed, found = run("algorithms.tests.test_distance_measures", select, tmp_path)
    assert passed == len(MORE_BOUNDS)
    assert not found["raised"]


def run(modules: str, select: str, folder: Path) -> tuple[int, dict[str, dict[str, int]]]:
    """Run tests of NetworkX on the backend; return how many passed, and the counts of its calls.

    Args:
        modules: modules of NetworkX's tests.
        select: the tests to run, as for ``pytest -k``.
        folder: a folder to run in.
    """
    counts = folder / "counts.json"
    settings = {
        "NETWORKX_TEST_BACKEND": "dbfs",
        # NetworkX runs other functions, and calls that the backend refuses. Most tests would end at the first of these.
        "NETWORKX_FALLBACK_TO_NX": "1",
        "NETWORKX_CALLS": str(counts),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    options = ["-q", "-p", "tests.support.networkx_calls", "-p", "no:cacheprovider", "-c", os.devnull, "-k", select]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", "--pyargs"]
        + [f"networkx.{module}" for module in modules.split()],
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert "xfailed" not in done.stdout
    return int(passed[1]), json.loads(counts.read_text())
