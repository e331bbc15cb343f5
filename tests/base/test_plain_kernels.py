"""Plain kernels: small work runs as Python, with the results of the compiled kernel, until that pays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types
from numba.extending import register_jitable

from dbfs.cluster.kernels import every_kernel
from dbfs_workers.base import compiling, jit
from dbfs_workers.base.intrinsics import trailing_zeros
from dbfs_workers.base.jit import INT64, READ_INT64, int64, kernel

uint64 = types.uint64

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_python_computes_what_plain_kernels_do() -> None:
    """Every plain kernel, on small graphs: the same results and the same arrays as compiled."""
    program = [sys.executable, "-m", "tests.support.plain_kernels"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    plain = [each for each in compiling.found(every_kernel()) if each.plain]
    within = {called.name for each in plain for called in each.called}
    assert set(done.stdout.split()) >= {each.name for each in plain} - within


@pytest.fixture
def total() -> jit.Kernel:
    def total(numbers, out):  # type: ignore[no-untyped-def]
        for i in range(numbers.size):
            out[0] += numbers[i]
        return numbers.size

    return kernel(int64, READ_INT64, INT64, plain=True)(total)


def called(made: jit.Kernel, size: int) -> int:
    numbers, out = np.arange(size), np.zeros(1, np.int64)
    assert made(jit.read_only(numbers), out) == size
    return int(out[0])


def test_small_work_is_not_compiled_and_large_work_is(total: jit.Kernel) -> None:
    assert called(total, 100) == 4950
    assert not total.signatures
    assert called(total, jit.SMALL) == jit.SMALL * (jit.SMALL - 1) // 2
    assert total.signatures


def test_a_kernel_is_compiled_once_the_time_in_python_has_paid_for_it(
    total: jit.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "_COMPILED_AFTER", 0.0)
    called(total, 100)
    assert not total.signatures
    assert called(total, 100) == 4950
    assert total.signatures


def test_a_kernel_that_is_kept_is_loaded_after_less_time(total: jit.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_LOADED_AFTER", 0.0)
    called(total, 100)
    monkeypatch.setattr(jit.Kernel, "kept", False)
    called(total, 100)
    assert not total.signatures
    monkeypatch.setattr(jit.Kernel, "kept", True)
    called(total, 100)
    assert total.signatures


def test_unsigned_arguments_wrap_around() -> None:
    """Numba makes numbers of the declared types of what it is given."""
    made = kernel(uint64, uint64, uint64, plain=True)(lambda one, other: one * other)
    assert made(2**63, 3) == 2**63
    assert not made.signatures
    made.ready()
    assert made(2**63, 3) == 2**63


def test_a_plain_kernel_calls_plain_kernels_alone() -> None:
    inner = kernel(int64, int64)(lambda value: value + 1)
    outer = kernel(int64, int64, plain=True)(lambda value: inner(value))
    with pytest.raises(AssertionError, match="called by a plain kernel"):
        outer(1)


@kernel(types.uint32, types.uint32, plain=True)
def lowest(word):  # type: ignore[no-untyped-def]
    return trailing_zeros(word)


@register_jitable  # type: ignore[untyped-decorator]
def shifted(word):  # type: ignore[no-untyped-def]
    return lowest(word) + word


@register_jitable  # type: ignore[untyped-decorator]
def doubled(visit, word):  # type: ignore[no-untyped-def]
    return 2 * visit(word)


def test_templates_of_plain_kernels_run_as_python() -> None:
    """They call kernels and templates, and are given templates by name."""
    made = kernel(int64, types.uint32, plain=True)(lambda word: doubled(shifted, word))
    assert made(8) == 22
    assert not made.signatures
    assert not lowest.signatures
    assert made.called == [lowest]
    made.ready()
    assert made(8) == 22
