"""The traversals of a run: one spec with many sources is the same as a spec for each source."""

import pickle
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.living.purpose import Repair

VERTICES = st.lists(st.integers(0, 99), max_size=4).map(tuple)


@given(st.lists(VERTICES, max_size=9), VERTICES, st.integers(-9, 9), st.integers(-9, 9))
def test_a_run_is_the_sequence_of_its_traversals(
    sources: list[tuple[int, ...]], targets: tuple[int, ...], first: int, end: int
) -> None:
    options = TraversalSpec("run", (), predecessors=True, backend="cpu", max_depth=3, targets=targets)
    run, each = RunSpec(options, tuple(sources)), [replace(options, sources=one) for one in sources]
    assert list(run) == [run[index] for index in range(len(run))] == each
    assert list(run[first:end]) == each[first:end]
    assert pickle.loads(pickle.dumps(run)) == run
    positions = [7 * vertex % 100 for vertex in range(100)]
    moved = run.renumbered(lambda vertices: [positions[vertex] for vertex in vertices])
    assert list(moved) == [
        replace(
            spec,
            sources=tuple(positions[vertex] for vertex in spec.sources),
            targets=tuple(positions[vertex] for vertex in spec.targets),
        )
        for spec in each
    ]


def test_a_run_of_one_traversal() -> None:
    spec = TraversalSpec("run", (5, 3), predecessors=False, backend="cpu", targets=(1,), purpose=Repair(("earlier", 2)))
    assert list(RunSpec.single(spec)) == [spec]
