"""The exchange of ranks on GPUs that can't map each other's memory: it goes through the host and a host exchange.

The phases bin and mark in device memory. At a crossing, the new entries of the bins are copied into the bins of the
host exchange, which carries them to their owners. The owners copy the received entries to their devices. So only
remote vertices cross the bus, not edges: 8 bytes for each entry of a bin (16 with its parent), half at either end.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.backend import Backend
from dbfs_workers.search.exchange.protocol import Cause, CrossedBy, Exchange
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import C


def nbytes(stripe: Stripe) -> int:
    """Return the bytes of a rank's bins, their parents and its slice on the device."""
    return 2 * 4 * stripe.p * stripe.n_local + 4 * stripe.words_local


class StagedExchange:
    """An ``Exchange`` whose bins, parents and slices are arrays of a backend, carried by the exchange ``host``.

    The bins of ``host`` have ``n_local`` entries each, as those on the device, so that a level needs one crossing.
    """

    crossed_by = CrossedBy.HOST

    def __init__(self, host: Exchange, stripe: Stripe, backend: Backend) -> None:
        self.rank = host.rank
        self.p = host.p
        self._host = host
        self._backend = backend
        self._n_local = stripe.n_local
        self.bin_rows: NDArray[np.uint32] = backend.xp.empty(stripe.p * stripe.n_local, np.uint32)
        self.bin_parents: NDArray[np.uint32] = backend.xp.empty(0, np.uint32)
        self.bin_ends = np.zeros(self.p, np.int64)
        self.gathered = host.gathered
        self._staged = [0] * self.p
        # One buffer is enough: peers read the copies of the host exchange, which has two by parity.
        self._slice: NDArray[np.uint32] = backend.xp.zeros(stripe.words_local, np.uint32)
        self._predecessors = False

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """See ``Exchange.begin``."""
        self._host.begin(run_id, number, deadline)

    def reset(self, predecessors: bool) -> None:
        """See ``Exchange.reset``."""
        self._host.reset(predecessors)
        self.bin_ends[:] = 0
        self._staged = [0] * self.p
        self._predecessors = predecessors
        if predecessors and not self.bin_parents.size:
            self.bin_parents = self._backend.xp.empty_like(self.bin_rows)

    def slice(self) -> NDArray[np.uint32]:
        """See ``Exchange.slice``."""
        return self._slice

    def cross(self, level: int, phase: str, counts: C, *, sliced: bool) -> C:
        """See ``Exchange.cross``."""
        host = self._host
        for owner, end in enumerate(self.bin_ends.tolist()):
            start = self._staged[owner]
            if end > start:
                self._staged[owner] = end
                binned = np.s_[owner * self._n_local + start : owner * self._n_local + end]
                first = owner * self._n_local + int(host.bin_ends[owner])
                host.bin_ends[owner] += end - start
                there = np.s_[first : first + end - start]
                self._backend.to_host(self.bin_rows[binned], host.bin_rows[there])
                if self._predecessors:
                    self._backend.to_host(self.bin_parents[binned], host.bin_parents[there])
        if sliced:
            self._backend.to_host(self._slice, self._host.slice())
        return self._host.cross(level, phase, counts, sliced=sliced)

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """See ``Exchange.incoming``."""
        for rows, parents in self._host.incoming():
            to_device = self._backend.to_device
            yield to_device(rows), None if parents is None else to_device(parents)

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        return self._slice if source == self.rank else self._backend.to_device(self._host.slice_of(source))

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """See ``Exchange.abort``."""
        self._host.abort(number, cause, message, rank)

    def close(self) -> None:
        """See ``Exchange.close``."""
        self._host.close()
