"""Where rows lie, version by version: each version against plain copies, however long others are kept."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.features.living import row_versions
from dbfs_workers.features.living.row_versions import RowVersion

ROWS = 400

Kept = list[tuple[RowVersion, np.ndarray, np.ndarray]]


@settings(deadline=None, max_examples=60)
@given(
    # How many rows move; whether the version is committed; which versions are kept from then on.
    st.lists(st.tuples(st.sampled_from([0, 1, 5, 200]), st.booleans(), st.integers(0, 7)), max_size=25),
    st.integers(0, 2**32 - 1),
)
def test_versions_agree_with_copies(steps: list[tuple[int, bool, int]], seed: int) -> None:
    generator = np.random.default_rng(seed)
    starts = np.arange(ROWS, dtype=np.int64)
    version, ends = RowVersion(starts.copy(), starts + 1), starts + 1
    kept: Kept = []
    for moved, committed, keep in steps:
        rows = generator.choice(ROWS, moved, replace=False)
        places = generator.integers(0, 1000, moved)
        following = version.moved(rows, places, places + 3)
        new_starts, new_ends = starts.copy(), ends.copy()
        new_starts[rows], new_ends[rows] = places, places + 3
        # A slice alone keeps the memory, as a version does.
        slices = RowVersion(following.starts[:], following.ends[:])
        kept = [each for at, each in enumerate(kept) if keep >> at % 3 & 1]
        kept.append((slices, new_starts, new_ends))
        if committed:
            version, starts, ends = following, new_starts, new_ends
        del following, slices
        for each, first, last in [*kept, (version, starts, ends)]:
            assert (each.starts == first).all()
            assert (each.ends == last).all()


def test_memory_is_used_again() -> None:
    version = RowVersion(np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64))
    rows, place = np.array([3]), np.array([7])
    addresses = []
    for _ in range(6):
        version = version.moved(rows, place, place)
        addresses.append(version.starts.ctypes.data)
    assert len(set(addresses)) == 2
    assert len(version.steps) == row_versions._KNOWN
    read = pickle.loads(pickle.dumps(version))
    assert (read.starts == version.starts).all()
    assert (read.ends == version.ends).all()
