"""Chains of communities: degree classes, edges between communities, expected degrees."""

import numpy as np
import pytest

from dbfs.edges.generate.communities import DegreeClasses, communities, power_law


@pytest.mark.parametrize(
    ("vertices", "mean", "least", "most"),
    [(49131, 3.15, 1, 48), (13566, 36.95, 4, 600), (169853, 12.62, 1, 4096), (663, 12.62, 1, 4096), (192, 3.15, 1, 48)],
)
def test_degree_classes_follow_a_power_law_of_the_mean_degree(
    vertices: int, mean: float, least: int, most: int
) -> None:
    classes = power_law(vertices, mean, least, most)
    assert classes.vertices == vertices
    assert classes.slots / vertices == pytest.approx(mean, rel=0.06)
    assert classes.degrees[0] == least
    assert most / 2 < classes.degrees[-1] <= most
    assert all(fewer <= more for more, fewer in zip(classes.counts, classes.counts[1:], strict=False))
    assert classes.counts[-1] >= 1


def test_every_vertex_has_its_slots() -> None:
    classes = DegreeClasses((1, 2, 8), (5, 3, 2))
    vertices = classes.of_slots(np, np.arange(classes.slots))
    assert sorted(np.bincount(vertices, minlength=10)) == [1] * 5 + [2] * 3 + [8] * 2


def test_vertices_list_their_degrees_and_are_met_as_often() -> None:
    """Twice 400 edges per vertex of the highest class: 800 on average, and half the edges stay in their community."""
    classes = DegreeClasses((100, 400), (90, 10))
    edges = communities("", 8, classes, directed=False)
    sources, targets = edges.cut(2**40)[0].read()
    listed, met = (np.bincount(ends, minlength=edges.n) for ends in (sources, targets))
    assert sorted(set(listed)) == [100, 400]
    inner = slice(2 * 100, 6 * 100)
    np.testing.assert_allclose(met[inner], listed[inner], rtol=0.5)
    assert met[inner].sum() == pytest.approx(listed[inner].sum(), rel=0.02)
    steps = targets // 100 - sources // 100
    middle = (sources // 100 > 0) & (sources // 100 < 7)
    shares = np.bincount(steps[middle] + 1) / middle.sum()
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.01)


def test_hubs_are_spread() -> None:
    classes = power_law(1000, 4, 1, 64)
    hubs = classes.of_slots(np, np.arange(classes.slots - 64 * classes.counts[-1], classes.slots))
    assert np.diff(np.unique(hubs)).min() > 10
