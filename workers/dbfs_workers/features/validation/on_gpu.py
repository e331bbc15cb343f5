"""Validation on GPUs: the pass over edges (launch of ``kernels/validation.cu``), and the way of labels between GPUs."""

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np

from dbfs_workers.base.tokens import Token, issue
from dbfs_workers.building.cuda import launch
from dbfs_workers.features.validation.kernels.sources import VALIDATION
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.module import load
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import Stripe, own_rows

THREADS: Final = 256
TILE: Final = THREADS * 4
# 16 blocks on each of the 132 multiprocessors of an H100 fill the GPU; the blocks stride over the rest.
MOST_BLOCKS: Final = 132 * 16


def check_edges(
    src: Any,
    dst: Any,
    table: Any,
    predecessors: bool,
    directed: bool,
    bound: int,
    unsupported: Any,
    found: Any,
) -> None:
    """Check edges as ``checks.validation_kernels.check_edges`` does, with CuPy arrays for the same arguments.

    If several edges break a rule, ``found`` names any one of them, not the first.
    """
    if src.size:
        kernel = load(VALIDATION).get_function("dbfs_check_edges")
        options = (np.int32(predecessors), np.int32(directed), np.int64(bound))
        blocks = min(MOST_BLOCKS, -(-src.size // TILE))
        kernel((blocks,), (THREADS,), (src, dst, np.int64(src.size), table, *options, unsupported, found))


def pack(stripe: Stripe, rank: int, labels: RankLabels, sources: Sequence[int], farthest: int | None) -> Any | None:
    """Return the words of a rank's labels, as ``checks.validation.pack_labels`` makes them; None if they break a rule.

    Args:
        stripe, rank, sources, farthest: as of ``checks.validation.pack_labels``.
        labels: the labels, CuPy's.
    """
    import cupy

    own = own_rows(stripe, rank, sources)
    words, found = cupy.empty(stripe.owned(rank), np.uint64), cupy.zeros(2, np.uint64)
    parents = np.uint64(0) if labels.predecessors is None else labels.predecessors
    numbers = (np.uint32(rank), np.uint32(stripe.p), np.uint32(stripe.n_local))
    most = np.int64(stripe.n - 1 if farthest is None else min(farthest, stripe.n))
    given = (labels.distances, parents, np.int64(words.size), np.int64(stripe.n), *numbers, most)
    made = (cupy.asarray(own), np.uint32(own.size), words, found)
    launch(VALIDATION, "dbfs_pack_labels", words.size, (*given, *made))
    wrong, roots = found.get().tolist()
    return words if not wrong and roots == own.size else None


@dataclass(frozen=True)
class PeerWords:
    """Words of labels on another rank's GPU, as ``checks.validation.PackedLabels`` has them. Picklable.

    Attributes:
        token: the token of the owner, valid while the owner has the words.
        handle: CUDA IPC handle of the words.
        count: number of words.
    """

    token: Token
    graph_id: str
    handle: bytes
    count: int

    def on(self, xp: ModuleType) -> Any:
        """Return a copy of the words as an array of a module, NumPy or CuPy. Errors as for ``device_memory.mapped``."""
        import cupy

        self.token.verify(self.graph_id, f"the labels of process {self.token.pid} can't be mapped")
        words = cupy.empty(self.count, np.uint64)
        with device_memory.mapped(self.handle) as address:
            device_memory.copy_from(address, words)
        return words.get() if xp is np else words


class OwnWords:
    """Words of labels on this rank's GPU. Sent to another rank, they become ``PeerWords``: no word leaves the GPUs.

    Args:
        words: uint64, CuPy's; copied.

    Raises:
        ExchangeUnavailableError: the system does not allow GPU memory to be exported.
    """

    def __init__(self, words: Any, graph_id: str) -> None:
        self._words = device_memory.own_allocation(words.size, np.uint64)
        self._words[...] = words
        handle = device_memory.export_allocation(self._words)
        token = issue(graph_id)
        weakref.finalize(self, os.close, token.descriptor)
        self._for_peers = PeerWords(token, graph_id, handle, words.size)

    def __reduce__(self) -> tuple[Any, ...]:
        theirs = self._for_peers
        return PeerWords, (theirs.token, theirs.graph_id, theirs.handle, theirs.count)

    def on(self, xp: ModuleType) -> Any:
        """Return the words as an array of a module, copied only for NumPy."""
        return self._words.get() if xp is np else self._words
