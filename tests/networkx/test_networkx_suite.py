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


# Tests of NetworkX that are left out. This one compares bounds with plain searches on 500 random graphs, by weight too,
# which the backend refuses: six minutes of small traversals. test_networkx_functions.py makes the comparison.
LEFT_OUT = "test_use_bounds_on_off_consistency"

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
    counts = tmp_path / "counts.json"
    settings = {
        "NETWORKX_TEST_BACKEND": "dbfs",
        # NetworkX runs other functions, and calls that the backend refuses. Most tests would end at the first of these.
        "NETWORKX_FALLBACK_TO_NX": "1",
        "NETWORKX_CALLS": str(counts),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    options = ["-q", "-p", "tests.support.networkx_calls", "-p", "no:cacheprovider", "-c", os.devnull]
    options += ["-k", f"not {LEFT_OUT}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", "--pyargs"]
        + [f"networkx.{module}" for module in modules.split()],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert "xfailed" not in done.stdout
    found = json.loads(counts.read_text())
    assert set(functions.split()) <= found["ran"].keys()
    # A function leaves a call to NetworkX for a parameter that it refuses, and never after it has begun.
    refusing = {name for name, offer in OFFERS.items() if offer.refused}
    assert found["fell back"].keys() & OFFERS.keys() <= refusing
    assert not found["raised"]
