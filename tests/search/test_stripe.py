import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbfs_workers.base.errors import GraphTooLargeError
from dbfs_workers.search.partition.stripe import WORD_BITS, Stripe

stripes = st.builds(Stripe, n=st.integers(0, 10_000), p=st.integers(1, 40))


@given(stripes)
def test_every_vertex_has_one_place(stripe: Stripe) -> None:
    vertices = np.arange(stripe.n, dtype=np.int64)
    ids = stripe.internal(vertices)
    assert np.unique(ids).size == stripe.n
    np.testing.assert_array_equal(stripe.vertex(ids), vertices)
    np.testing.assert_array_equal(ids // stripe.n_local, stripe.owner(vertices))
    np.testing.assert_array_equal(ids % stripe.n_local, stripe.row(vertices))


@given(stripes)
def test_slices_are_whole_words_and_hold_all_owned_rows(stripe: Stripe) -> None:
    assert stripe.n_local % WORD_BITS == 0
    assert stripe.words == stripe.p * stripe.n_local // WORD_BITS
    owned = [stripe.owned(rank) for rank in range(stripe.p)]
    assert sum(owned) == stripe.n
    assert max(owned) <= stripe.n_local < max(owned) + 2 * WORD_BITS
    counts = np.bincount(np.arange(stripe.n) % stripe.p, minlength=stripe.p)
    assert owned == counts.tolist()


def test_ids_past_32_bits_are_refused_with_the_numbers() -> None:
    Stripe(2**32 - 64, 1)
    with pytest.raises(GraphTooLargeError, match=r"5000000000 vertices on 4 ranks need 5000000000 internal ids"):
        Stripe(5_000_000_000, 4)


@pytest.mark.parametrize(("n", "p"), [(-1, 1), (1, 0)])
def test_impossible_stripes(n: int, p: int) -> None:
    with pytest.raises(ValueError, match="a stripe needs"):
        Stripe(n, p)


def test_the_last_internal_id_means_no_vertex() -> None:
    with pytest.raises(GraphTooLargeError, match="internal ids"):
        Stripe(2**32, 1)
