"""The experiments of Merrill 2012, section 4, by the emulator of a GPU."""

import numpy as np

from benchmarks import lab_page
from benchmarks.lab_experiments import KERNELS, measure
from dbfs_workers.features.lab.strategies import GATHERING
from dbfs_workers.features.lab.tuning import Tuning
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import THREADS, EmulatedGpu

pytestmark = needs_compiler


def test_the_experiments_of_a_level_look_at_all_its_edges() -> None:
    """``measure`` itself asserts that each kernel looked at all entries of its queue."""
    matrix = oracle.adjacency(*graphs.random(300, 1500, 3), directed=False)
    lists = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32)
    tuning = Tuning(threads=THREADS, most_blocks=3)
    found = measure("random", *lists, 5, levels=3, repeats=1, device=lambda policy: EmulatedGpu(), tuning=tuning)
    distances = oracle.distances(matrix, [5])
    edges = np.bincount(distances[distances >= 0], weights=np.diff(matrix.indptr)[distances >= 0])
    assert [one.gathering for one in found] == list(GATHERING)
    for one in found:
        assert (one.levels, one.edges) == (3, int(np.sort(edges)[-3:].sum()))
        assert set(one.rates) == {"expand", *KERNELS}
        assert all(rate > 0 for rate in one.rates.values())


def test_the_page_beside_the_paper_has_the_saved_results() -> None:
    text = lab_page.PAGE.read_text(encoding="utf-8")
    assert lab_page.page(text) == text
    for graph in lab_page.PUBLISHED:
        assert f"| `{graph}` |" in text
