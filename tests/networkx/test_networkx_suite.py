"""NetworkX's own tests, with every function that the backend offers run by the backend."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dbfs.networkx.registry import OFFERS

ROOT = Path(__file__).parents[2]

# By part, the modules of NetworkX's tests, and the functions that the part is there for.
PARTS = {
    "paths": (
        "algorithms.shortest_paths.tests.test_unweighted algorithms.shortest_paths.tests.test_generic",
        """shortest_path shortest_path_length average_shortest_path_length has_path predecessor all_shortest_paths
        single_source_all_shortest_paths all_pairs_all_shortest_paths bidirectional_shortest_path
        single_source_shortest_path single_source_shortest_path_length single_target_shortest_path
        single_target_shortest_path_length all_pairs_shortest_path all_pairs_shortest_path_length""",
    ),
    "traversal": (
        """algorithms.traversal.tests.test_bfs algorithms.tests.test_dag algorithms.tree.tests.test_recognition
        algorithms.bipartite.tests.test_basic""",
        """bfs_edges bfs_tree bfs_predecessors bfs_successors bfs_layers descendants_at_distance descendants
        ancestors is_tree is_forest is_arborescence is_branching is_bipartite is_bipartite_node_set color sets""",
    ),
    "components": (
        """algorithms.components.tests.test_connected algorithms.components.tests.test_weakly_connected
        algorithms.components.tests.test_strongly_connected algorithms.tests.test_efficiency
        algorithms.tests.test_wiener""",
        """connected_components number_connected_components is_connected node_connected_component
        weakly_connected_components number_weakly_connected_components is_weakly_connected is_strongly_connected
        efficiency global_efficiency wiener_index hyper_wiener_index schultz_index gutman_index""",
    ),
    "distances": (
        "algorithms.tests.test_distance_measures",
        "eccentricity diameter radius center periphery barycenter harmonic_diameter",
    ),
    "centrality": (
        """algorithms.centrality.tests.test_closeness_centrality algorithms.centrality.tests.test_harmonic_centrality
        algorithms.centrality.tests.test_reaching algorithms.centrality.tests.test_group generators.tests.test_ego""",
        """closeness_centrality harmonic_centrality local_reaching_centrality global_reaching_centrality
        group_closeness_centrality ego_graph""",
    ),
}


# A test of NetworkX with 500 cases, which take ten minutes: bounds against plain searches on random graphs, by weight
# too, which the backend leaves to NetworkX. Parts have cases with each density, number of nodes and seed.
BOUNDS = "test_use_bounds_on_off_consistency"
SOME_BOUNDS = [f"{step % 5 / 5}-{10 + step}-{step}" for step in range(10)]

# NetworkX tests this function only by others that call its code.
UNTESTED = ["generic_bfs_edges"]


def test_every_function_belongs_to_a_part() -> None:
    named = [name for _, functions in PARTS.values() for name in functions.split()]
    assert sorted(named + UNTESTED) == sorted(OFFERS)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_networkx_passes_its_own_tests(part: str, tmp_path: Path) -> None:
    modules, functions = PARTS[part]
    passed, found = run(modules, " or ".join([f"not {BOUNDS}", *SOME_BOUNDS]), tmp_path)
    assert passed > 0
    assert set(functions.split()) <= found["ran"].keys()
    # A function leaves a call to NetworkX for a parameter that it refuses, and never after it has begun.
    refusing = {name for name, offer in OFFERS.items() if offer.refused}
    assert found["fell back"].keys() & OFFERS.keys() <= refusing
    assert not found["raised"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_networkx_passes_all_its_tests_of_bounds(tmp_path: Path) -> None:
    passed, found = run("algorithms.tests.test_distance_measures", BOUNDS, tmp_path)
    assert passed == 500
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
