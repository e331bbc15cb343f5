"""The kernels of the messages between ranks, compiled for this CPU, in whole traversals against SciPy.

So is the kernel of bottom-up levels. The top-down phases before them are the CPU backend's; NCCL is a stand-in.
"""

import ctypes
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.search.cuda.communicator import FIRST_END, HALTED, INLINE, QUEUED, STATE, Tag
from dbfs_workers.search.cuda.messages import queues
from dbfs_workers.search.cuda.words import Progress, SearchSum, TopDownSum
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs
from tests.support.answers import assert_scipys, every_spec
from tests.support.cuda_on_cpu.compiler import emulated, needs_compiler
from tests.support.gang import partitions
from tests.support.nccl import NumpyMessages, Stream, by_nccl

pytestmark = needs_compiler

_LINE = 16
# Threads of a block: see ``messages.cpp``.
_THREADS = 64
_seeds = itertools.count()


class Kernels(NamedTuple):
    """The kernels of a source each, and of ``search/cuda/kernels/phases/levels.cu`` the bottom-up one."""

    messages: ctypes.PyDLL
    levels: ctypes.PyDLL


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    common, phases = "search/cuda/kernels/common/", "search/cuda/kernels/phases/"
    reserve = f"{phases}reserve.cuh"
    return Kernels(
        emulated("messages", f"{common}search.cuh", reserve),
        emulated("levels", f"{common}memory.cuh", f"{phases}edges.cuh", reserve),
    )


class EmulatedMessages(NumpyMessages):
    """The messages of ``backends.cuda_messages``, by its kernels."""

    kernels: Kernels

    def reset(self) -> None:
        super().reset()
        self._sums = np.zeros((TopDownSum.ENDS + self._stripe.p, _LINE), np.uint64)
        self._sent_before = np.zeros(self._stripe.p, np.uint64)
        self._search_sums = np.zeros((len(SearchSum), _LINE), np.uint64)
        self._progress = np.zeros(len(Progress), np.uint64)

    def most_ahead(self, max_degree: int) -> int:
        return _THREADS

    def pack(self, headers: NDArray[np.int64], bin_rows: Any, bin_parents: Any | None) -> None:
        self._run("pack", self._stripe.p, headers, bin_rows, bin_parents, INLINE, self.outgoing)

    def expand(
        self,
        tag: Tag,
        scratch: Scratch,
        labels: RankLabels,
        distance: int,
        bin_rows: Any,
        bin_parents: Any | None,
        edges: int,
        ahead: int,
    ) -> None:
        stripe, size = self._stripe, scratch.frontier.size

        def small_level() -> bool:
            assert ahead or self._sums[TopDownSum.ENDS + self._rank, 0] == 0
            partition = scratch.partition
            frontier, discovered = (scratch.queues[queue] for queue in queues(scratch, ahead))
            self._is_expanded = 1
            self._run(
                "small_level",
                1,
                partition.row_offsets,
                frontier,
                size,
                partition.columns,
                stripe.n_local,
                self._rank,
                stripe.p,
                scratch.visited,
                bin_rows,
                bin_parents,
                ctypes.c_int32(distance),
                labels.distances,
                labels.predecessors,
                discovered,
                self._sums,
                self._sent_before,
                *tag,
                INLINE,
                self.outgoing,
                self._progress,
                ahead,
            )
            # The CPU's backend goes on from here in larger levels.
            self._ends[:] = self._sums[TopDownSum.ENDS :, 0]
            self._ends[self._rank] = 0
            return True

        if ahead or size <= _THREADS:
            self._stream.append(small_level)
            return
        super().expand(tag, scratch, labels, distance, bin_rows, bin_parents, edges, ahead)
        self._is_expanded = int(size > 0)
        # The sum of the edges stays from level to level, and so do the bins' ends.
        self._sums[TopDownSum.EDGES, 0] = self._expanded
        self._sums[TopDownSum.ENDS :, 0] = self._ends
        self._sums[TopDownSum.ENDS + self._rank, 0] = self._own
        common = stripe.n_local, self._rank, self._is_expanded, *tag, INLINE, self.outgoing
        self._run("pack_level", stripe.p, self._sums, self._sent_before, bin_rows, bin_parents, *common)

    def contract(self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int, ahead: int, most: int) -> None:
        def contract() -> bool:
            discovered = scratch.queues[queues(scratch, ahead)[1]]
            result = self.results[ahead]
            self._run(
                "contract_messages",
                1,
                self.incoming,
                self._sums,
                self._sent_before,
                self._rank,
                self._stripe.p,
                self._is_expanded,
                *tag,
                INLINE,
                scratch.own_visited,
                ctypes.c_int32(distance),
                labels.distances,
                labels.predecessors,
                discovered,
                result,
                self._progress,
                ahead,
                most,
            )
            if result[STATE] != HALTED:
                self._queued = int(result[QUEUED])
                result[FIRST_END + self._rank :: self._stripe.p] = -7
            return True

        self._stream.append(contract)

    def absorb(self, slices: Any, scratch: Scratch) -> None:
        self._run("absorb", 2, slices, slices.size, scratch.frontier_bits, scratch.visited)

    def measure(self, tag: Tag, bits: Any, scratch: Scratch) -> None:
        bits[:] = 0
        frontier = scratch.frontier
        self._run("measure", 2, scratch.partition.row_offsets, frontier, frontier.size, bits, self._search_sums)
        self._run_pack_found(tag)

    def search(self, tag: Tag, found_bits: Any, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        parents, words = scratch.partition.parents, scratch.own_visited.size
        assert parents is not None
        self._run(
            "bottom_up",
            2,
            parents.row_offsets,
            parents.columns,
            scratch.partition.row_offsets,
            words,
            scratch.frontier_bits,
            scratch.own_visited,
            found_bits,
            ctypes.c_int32(distance),
            labels.distances,
            labels.predecessors,
            scratch.next_queue,
            self._search_sums,
        )
        self._run_pack_found(tag)

    def _run_pack_found(self, tag: Tag) -> None:
        messages = self.outgoing, self.incoming[self._rank]
        self._run("pack_found", 1, self._search_sums, self._stripe.p, *tag, INLINE, *messages)
        assert not self._search_sums.any()

    def queued(self) -> int:
        self._sums[TopDownSum.ENDS + self._rank, 0] = 0
        return super().queued()

    def _run(self, kernel: str, blocks: int, *arguments: Any) -> None:
        function = getattr(self.kernels.levels if kernel == "bottom_up" else self.kernels.messages, kernel)
        function.restype = ctypes.c_char_p
        answer = function(ctypes.c_uint(blocks), ctypes.c_ulonglong(next(_seeds)), *map(_argument, arguments))
        assert not answer, answer.decode()


def _argument(value: Any) -> Any:
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return value if isinstance(value, ctypes.c_int32) else ctypes.c_int64(int(value))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_labels_are_scipys(kernels: Kernels, p: int) -> None:
    def messages(stripe: Stripe, rank: int, stream: Stream) -> EmulatedMessages:
        made = EmulatedMessages(stripe, rank, stream)
        made.kernels = kernels
        return made

    # The second graph has bins that go with the messages and bins that do not. Levels of the third are queued ahead,
    # among them one with large bins.
    comet, source = graphs.comet(40, 5000)
    for arrays, sources in (
        (graphs.random(60, 90, 3), [20, 1]),
        (graphs.random(9000, 30_000, 1), [3000, 1]),
        (comet, [source]),
    ):
        n, src, dst = arrays
        with by_nccl(p, messages) as gang:
            gang.load(partitions(n, src, dst, p, directed=False))
            specs = every_spec(sources)
            assert_scipys(specs, gang.run(*specs), arrays, Stripe(n, p), directed=False)
