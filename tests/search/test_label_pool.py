"""The pool of label memory: no array that is held is ever written by a later traversal."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.search.partition.labels import LabelPool


def address(array: NDArray[np.int32]) -> int:
    return int(array.__array_interface__["data"][0])


def test_released_memory_is_used_again() -> None:
    pool = LabelPool(100, 1000)
    first = pool.full(-1, np.int32)
    place, view = address(first), first[10:20]
    del first
    assert pool.nbytes == 0
    assert address(pool.full(7, np.int32)) != place
    assert (view == -1).all()
    del view
    assert pool.nbytes == 800
    again = [pool.full(2**32 - 1, np.uint32) for _ in range(2)]
    assert place in [address(array) for array in again]
    assert all((array == 2**32 - 1).all() and array.dtype == np.uint32 for array in again)


def test_no_more_is_kept_than_allowed() -> None:
    pool = LabelPool(100, 1000)
    held = [pool.full(-1, np.int32) for _ in range(9)]
    held.clear()
    assert pool.nbytes == 800
    late = pool.full(-1, np.int32)
    pool.close()
    del late
    assert pool.nbytes == 0
    none = LabelPool(100, 399)
    none.full(-1, np.int32)
    assert none.nbytes == 0


def test_memory_of_another_owner_is_written_in_full() -> None:
    pool, owner = LabelPool(100, 1000), object()
    labels = pool.begun(owner, np.int32)
    assert (labels == -1).all()
    labels[:50] = 3
    del labels
    again = pool.begun(owner, np.int32)
    assert (again[50:] == -1).all()
    assert (again[:50] == 3).all()
    del again
    assert (pool.begun(object(), np.uint32) == 2**32 - 1).all()
    full = pool.full(4, np.int32)
    del full
    written = pool.begun(owner, np.int32)
    assert (written == -1).all()
    written[:] = 5
    pool.forget_owner(written)
    del written
    assert (pool.begun(owner, np.int32) == -1).all()


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_labels_that_are_held_stay(seed: int, rows: int) -> None:
    choose, pool = random.Random(seed), LabelPool(rows, 5 * 4 * rows)
    held: list[tuple[int, NDArray[np.int32]]] = []
    for value in range(60):
        labels = pool.full(value, np.int32)
        held.append((value, labels[choose.randrange(rows) :]))
        while held and choose.random() < 0.5:
            held.pop(choose.randrange(len(held)))
        assert all((array == kept).all() for kept, array in held)
