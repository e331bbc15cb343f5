"""The order of rows of attributes by keys, against NumPy's."""

import numpy as np
import pytest

from dbfs_workers.features.views.kernels.ordering import in_order


@pytest.mark.parametrize("size", [0, 1, 3, 500, 50_000])
@pytest.mark.parametrize("bits", [0, 1, 11, 12, 45, 64])
def test_keys_ascend_and_equal_ones_keep_their_order(size: int, bits: int) -> None:
    keys = np.random.default_rng(size + bits).integers(0, 2**bits - 1, size, np.uint64, endpoint=True)
    given = keys.copy()
    ascending, places = in_order(keys)
    np.testing.assert_array_equal(places, np.argsort(given, kind="stable"))
    np.testing.assert_array_equal(ascending, given[places])
    np.testing.assert_array_equal(keys, given)
