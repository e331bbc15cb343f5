"""The sizes of the suite: the rows of a matrix that each size runs."""

import re
from itertools import product
from pathlib import Path

import pytest

from tests.support.suites import run_suite

pytestmark = pytest.mark.full

# Values of the axes; "d" and 3 have the mark "full" themselves.
NAMES, NUMBERS, FLAGS = "abcd", (1, 2, 3), (False, True)
SUITE = """
import pytest

FULL = pytest.mark.full

@pytest.fixture(params=[False, True])
def flag(request):
    return request.param

@pytest.mark.matrix
@pytest.mark.parametrize("number", [1, 2, pytest.param(3, marks=FULL)])
@pytest.mark.parametrize("name", ["a", "b", "c", pytest.param("d", marks=FULL)])
def test_rows(flag, name, number):
    pass

@pytest.mark.parametrize("number", [1, 2, pytest.param(3, marks=FULL)])
@pytest.mark.parametrize("name", ["a", "b", "c", pytest.param("d", marks=FULL)])
def test_short_rows(flag, name, number):
    pass

@FULL
@pytest.mark.matrix
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_full_rows(name, number):
    pass

@pytest.mark.long
def test_long():
    pass

@pytest.mark.gpu
def test_gpu():
    raise AssertionError
"""
# What names neither tests nor marks is of the first size.
SIZES = {"first": (), "second": ("-m", "full and not long"), "third": ("-m", "long")}


def write_conftest(folder: Path, gpus: int) -> None:
    """Write the conftest of a machine with so many GPUs."""
    names = ("pytest_configure", "pytest_collection_modifyitems", "pytest_terminal_summary")
    text = f"from tests.support import sizes\nsizes.GPUS = {gpus}\n"
    (folder / "conftest.py").write_text(text + "".join(f"{name} = sizes.{name}\n" for name in names))


@pytest.fixture(scope="module")
def selected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of the tests that each size selects."""
    folder = tmp_path_factory.mktemp("suite")
    write_conftest(folder, gpus=0)
    return {
        size: set(re.findall(r"::(test_\S+)", run_suite(folder, SUITE, "--collect-only", "-q", *options)[1]))
        for size, options in SIZES.items()
    }


def test_tests_that_are_named_are_of_any_size(tmp_path: Path) -> None:
    write_conftest(tmp_path, gpus=0)
    code, said = run_suite(tmp_path, SUITE, "-ra", "test_suite.py::test_long", "test_suite.py::test_gpu")
    assert code == 0 and "1 passed, 1 deselected" in said
    assert said.count("no GPU") == 1 and "SKIPPED" not in said


def test_tests_that_need_a_gpu_run_where_there_is_one(tmp_path: Path) -> None:
    write_conftest(tmp_path, gpus=1)
    code, said = run_suite(tmp_path, SUITE, "-m", "gpu")
    assert code == 1 and "1 failed" in said and "no GPU" not in said


def rows(names: set[str], test: str) -> set[tuple[str, ...]]:
    """Return the coordinates of the rows of a test among names, in the order of their ids."""
    return {tuple(name.partition("[")[2].rstrip("]").split("-")) for name in names if name.startswith(f"{test}[")}


def test_every_test_is_of_one_size(selected: dict[str, set[str]]) -> None:
    assert sum(map(len, selected.values())) == len(set.union(*selected.values()))
    full_rows = {(name, str(number)) for name, number in product(NAMES, NUMBERS)}
    every = {(str(flag), *row) for flag, row in product(FLAGS, full_rows)}
    for test in ("test_rows", "test_short_rows"):
        assert set.union(*(rows(names, test) for names in selected.values())) == every
    assert set.union(*(rows(names, "test_full_rows") for names in selected.values())) == full_rows
    assert [size for size, names in selected.items() if "test_long" in names] == ["third"]


def test_a_diagonal_has_each_value_of_each_axis(selected: dict[str, set[str]]) -> None:
    first, second = (rows(selected[size], "test_rows") for size in ("first", "second"))
    assert values_of_axes(first) == [{"False", "True"}, set("abc"), set("12")]
    assert len(first) == 3
    assert rows(selected["first"], "test_short_rows") == first
    assert rows(selected["third"], "test_short_rows") == set()
    # Rows of the first diagonal that are on the second one run once.
    assert values_of_axes(first | second) == [{"False", "True"}, set(NAMES), set("123")]
    assert len(second) <= 4
    assert rows(selected["first"], "test_full_rows") == set()
    full_rows = rows(selected["second"], "test_full_rows")
    assert values_of_axes(full_rows) == [set(NAMES), set("123")]
    assert len(full_rows) == 4


def values_of_axes(rows: set[tuple[str, ...]]) -> list[set[str]]:
    return [set(values) for values in zip(*rows, strict=True)]
