"""The decorators of CPU kernels: what they compile and what they refuse."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import types
from numba.core.errors import NumbaError
from numba.core.runtime import _nrt_python, rtsys

from dbfs_workers.base.jit import INT64, allocating_kernel, int64, kernel, named


def test_kernels_that_allocate_are_refused() -> None:
    with pytest.raises(AssertionError, match="return arrays"):
        kernel(INT64, int64)(lambda n: np.zeros(n, np.int64))
    with pytest.raises(NumbaError, match="NRT required|Only accept returning"):
        kernel(int64, int64)(lambda n: np.zeros(n, np.int64).sum())(3)


@pytest.mark.full
def test_memory_of_allocating_kernels_is_freed() -> None:
    total = allocating_kernel(int64, int64)(lambda n: np.ones(n, np.int64).sum())
    outer = kernel(int64, types.int64)(lambda n: total(n) + 1)
    _nrt_python.memsys_enable_stats()
    gc.collect()
    before = rtsys.get_allocation_stats()
    assert outer(1000) == 1001
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0


class Pair(NamedTuple):
    left: Any
    right: Any


def test_a_bound_kernel_looks_at_its_first_arguments_once() -> None:
    added = kernel(int64, named(Pair, INT64, INT64), int64, types.boolean)(
        lambda pair, at, doubled: (pair.left[at] + pair.right[at]) * (1 + doubled)
    )
    ones, twos = np.full(3, 1), np.full(3, 2)
    bound = added.bound(Pair(ones, twos))
    ones[1] = 5
    assert [bound(at, False) for at in range(3)] == [3, 7, 3]
    assert bound(1, True) == 14
    for wrong in (Pair(ones, twos.astype(np.int32)), Pair(ones, twos[::2]), (ones, twos), ones):
        with pytest.raises(TypeError, match="takes Pair"):
            added.bound(wrong)
    with pytest.raises(AssertionError):
        added.bound()


CALLEES = """
import numba
from numba.extending import intrinsic, register_jitable
from dbfs_workers.base.jit import int64, kernel
AHEAD = 5

def constant(context, value):
    return context.get_constant(int64, value) if value else constant(context, 1)

@intrinsic
def one(typingctx):
    return int64(), lambda context, builder, signature, arguments: constant(context, 1)

@register_jitable
def least(value):
    \"\"\"Return 3.\"\"\"
    return max(value, 3)

@register_jitable
def twice(visit, value):
    return visit(value) * 2

@kernel(int64, int64)
def inner(value):
    return twice(least, value) + one()
"""
CALLER = """
from callees import AHEAD, inner
from dbfs_workers.base.jit import int64, kernel, named
from kinds import One

@kernel(int64, named(One, int64))
def outer(one):
    return inner(one.value) + AHEAD
"""
KINDS = """
from typing import NamedTuple

class One(NamedTuple):
    value: int
"""


@pytest.mark.full
def test_a_kernel_is_not_kept_beyond_a_change_of_what_it_contains(tmp_path: Path) -> None:
    """Numba itself looks at the kernel's own file only."""

    def called(before: str = "", after: str = "") -> str:
        (tmp_path / "callees.py").write_text(CALLEES.replace(before, after) if before else CALLEES)
        code = "from caller import One, outer; print(outer.kept, outer(One(1)))"
        run = subprocess.run([sys.executable, "-Bc", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        return run.stdout.strip()

    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "kinds.py").write_text(KINDS)
    assert called() == "False 12"
    assert called() == "True 12"
    assert called("Return 3", "Return 3 or more") == "True 12"
    for before, after, result in (
        *(("value, 3", "value, 4", 14), ("max(value, 3)", "value", 8), ("* 2", "* 3", 15)),
        *(("AHEAD = 5", "AHEAD = 6", 13), ("constant(context, 1)\n\n@", "constant(context, 9)\n\n@", 20)),
    ):
        assert called(before, after) == f"False {result}"
    # A kernel that is called moves. The compiled caller has the module's name, and can't be loaded without it.
    (tmp_path / "moved.py").write_text(CALLEES)
    assert called(CALLEES, "from moved import AHEAD, inner") == "False 12"
    # A class of an argument moves.
    (tmp_path / "later.py").write_text(KINDS)
    (tmp_path / "kinds.py").write_text("from later import One\n")
    (tmp_path / "callees.py").write_text(CALLEES)
    code = "import kinds; from caller import One, outer; del kinds.One; print(outer(One(1)))"
    subprocess.run([sys.executable, "-Bc", code], cwd=tmp_path, check=True)
