"""The way of labels between GPUs in a validation, tested without a GPU: stand-ins for CuPy and for mapped memory."""

import gc
import pickle
from dataclasses import replace

import numpy as np
import pytest

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.features.validation.on_gpu import OwnWords, PeerWords
from dbfs_workers.features.validation.validation import check_edges, merge_findings, pack_labels
from dbfs_workers.features.validation.verdict import Rule
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import standin


def test_words_reach_the_peers_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = standin.install(monkeypatch, mapped=True)
    words = np.arange(5, dtype=np.uint64).view(standin.Array)
    own = OwnWords(words, "graph")
    peers = pickle.loads(pickle.dumps(own))
    assert isinstance(peers, PeerWords)
    assert len(pickle.dumps(own)) < 1000
    for there in (own, peers):
        assert isinstance(there.on(cupy), standin.Array)
        assert not isinstance(there.on(np), standin.Array)
        assert there.on(np).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ExchangeUnavailableError, match="its token is of another graph"):
        replace(peers, graph_id="other").on(cupy)
    del own
    gc.collect()
    with pytest.raises(ExchangeUnavailableError, match="the labels of process .* can't be mapped"):
        peers.on(cupy)


def test_a_peer_whose_memory_can_not_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = standin.install(monkeypatch, mapped=False)
    own = OwnWords(np.zeros(3, np.uint64).view(standin.Array), "graph")
    with pytest.raises(ExchangeUnavailableError, match="can't be mapped"):
        pickle.loads(pickle.dumps(own)).on(cupy)


@pytest.mark.parametrize("wrong", [None, 3])
def test_verdicts_by_mapped_words(monkeypatch: pytest.MonkeyPatch, wrong: int | None) -> None:
    """A path on two ranks: each rank has its own words, and the other's as they travel."""
    standin.install(monkeypatch, mapped=True)
    stripe = Stripe(6, 2)
    distances = np.arange(6, dtype=np.int32)
    parents = np.maximum(np.arange(6) - 1, 0)
    if wrong is not None:
        parents[wrong] = 5
    edges = [(np.arange(5, dtype=np.uint32), np.arange(1, 6, dtype=np.uint32))]
    packed = [pack_labels(stripe, rank, distances[rank::2], parents[rank::2], (0,), None) for rank in range(2)]
    own = [replace(mine, words=OwnWords(mine.words, "graph")) for mine in packed]
    options = {"predecessors": True, "directed": False, "farthest": None}
    seen = [
        [pickle.loads(pickle.dumps(one)) if other != rank else one for other, one in enumerate(own)] for rank in (0, 1)
    ]
    checks = [check_edges(stripe, rank, edges if rank == 0 else [], seen[rank], None, **options) for rank in (0, 1)]
    verdict = merge_findings(stripe, seen[0], checks, None, predecessors=True, of_input=True)
    # The wrong parent also closes a circle.
    rules = [violation.rule for violation in verdict.violations]
    assert rules == ([] if wrong is None else [Rule.TREE, Rule.STEP])
