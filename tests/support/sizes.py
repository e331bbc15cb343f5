"""The three sizes of the suite: which tests, and which rows of a matrix, each of them runs; a part of the conftest.

The first size (``make test``) is every test without the mark ``full``, and covers every feature once. So does pytest
where the command names neither tests nor marks. The second size
(``make test-all``) adds the tests with the mark ``full``. The third size (``make test-long``) is the tests with the
mark ``long``.

Of a test with several axes the first size runs a diagonal: as many rows as the longest axis has values, while shorter
axes start over, so that every value of every axis occurs. This diagonal leaves out values that have the mark ``full``
themselves. The second size runs all other rows; of a test with the mark ``matrix``, whose rows take long, another
diagonal of all values, and its other rows are ``long``.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import pytest

from tests.support.gpus import GPUS

FIRST: Final = "not full"
"""The marks of the first size."""

Point = tuple[tuple[int, ...], ...]


def pytest_configure(config: pytest.Config) -> None:
    """Choose the first size, unless the command names tests or marks."""
    if config.args_source is not config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = FIRST


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the rows of matrices before pytest selects by marks; leave out what needs a GPU where there is none."""
    mark_sizes(items)
    if not GPUS:
        config.hook.pytest_deselected(items=[item for item in items if has(item, "gpu")])
        items[:] = [item for item in items if not has(item, "gpu")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once, not by a line each, that tests were left out."""
    if not GPUS:
        terminalreporter.write_line("There is no GPU: tests with the mark gpu were left out.")


def mark_sizes(items: Sequence[pytest.Item]) -> None:
    """Mark the rows of tests by their sizes. Every ``long`` test is ``full`` as well: no part of the first size."""
    tests: dict[object, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if has(item, "long"):
            item.add_marker("full")
        elif isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            # Rows that need a GPU have diagonals of their own, as elsewhere they are left out.
            tests[item.parent, item.originalname, has(item, "gpu")].append(item)
    for rows in tests.values():
        points = [coordinates(row) for row in rows]
        first = diagonal([point for row, point in zip(rows, points, strict=True) if not has(row, "full")], shift=0)
        second = diagonal(points, shift=1)
        for row, point in zip(rows, points, strict=True):
            if has(row, "full") or point not in first:
                row.add_marker("full")
                if has(row, "matrix") and point not in second:
                    row.add_marker("long")


def has(item: pytest.Item, mark: str) -> bool:
    """Return whether a test has a mark."""
    return item.get_closest_marker(mark) is not None


def coordinates(row: pytest.Function) -> Point:
    """Return the row's value on each axis, as identities: one axis a ``parametrize``, and one a fixture with params."""
    values = {name: id(value) for name, value in row.callspec.params.items()}
    axes = [mark.args[0] for mark in row.iter_markers("parametrize")]
    names = [axis.replace(" ", "").split(",") if isinstance(axis, str) else axis for axis in axes]
    of_test = [tuple(values.pop(name) for name in axis) for axis in names]
    return (*of_test, *((value,) for value in values.values()))


def diagonal(points: Sequence[Point], shift: int) -> set[Point]:
    """Return points that have every value of every axis. ``shift`` moves each axis against the one before."""
    axes = [list(dict.fromkeys(values)) for values in zip(*points, strict=True)]
    longest = max(map(len, axes), default=0)
    # Shorter axes run backwards: the first, plainest ways of a list of ways meet the most ranks.
    axes = [values if len(values) == longest else values[::-1] for values in axes]
    return {
        tuple(values[(step + shift * number) % len(values)] for number, values in enumerate(axes))
        for step in range(longest)
    }
