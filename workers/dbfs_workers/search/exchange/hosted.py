"""The exchange of levels that run in the host's memory, by an exchange whose bins lie on a GPU.

The reverse of ``staged``: a crossing copies the bins to the GPU, from where NCCL takes them, and back at their owners.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.exchange.protocol import Cause, CrossedBy, Exchange
from dbfs_workers.search.partition.partition import array_module, on_host
from dbfs_workers.search.reports.crossings import C


class Carrier(Exchange, Protocol):
    """An exchange by NCCL, whose bins have ``entries`` entries, and parents or none."""

    entries: int


class HostedExchange:
    """An ``Exchange`` whose bins are NumPy's, each emptied at a crossing. It has no slices.

    In a message the parents follow the rows, as rows: so a bin has half of the entries of one of the carrier, and the
    carrier of a 2-D partition, whose bins have no parents, serves as well.
    """

    crossed_by = CrossedBy.HOST

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.rank, self.p, self.gathered = carrier.rank, carrier.p, carrier.gathered
        self._entries = carrier.entries // 2
        self.bin_rows, self.bin_parents = (np.empty(self.p * self._entries, np.uint32) for _ in range(2))
        self.bin_ends = np.zeros(self.p, np.int64)

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """See ``Exchange.begin``."""
        self._carrier.begin(run_id, number, deadline)

    def reset(self, predecessors: bool) -> None:  # noqa: ARG002 - parents travel in any case
        """See ``Exchange.reset``."""
        self.bin_ends[:] = 0

    def slice(self) -> NDArray[np.uint32]:
        """See ``Exchange.slice``."""
        raise NotImplementedError

    def cross(self, level: int, phase: str, counts: C, *, sliced: bool) -> C:
        """See ``Exchange.cross``."""
        carrier = self._carrier
        # Both ends of the last crossing's transfers are over, so its entries may be overwritten.
        carrier.reset(False)
        bins = carrier.bin_rows.reshape(self.p, -1)
        for owner in np.flatnonzero(self.bin_ends).tolist():
            size, first = int(self.bin_ends[owner]), owner * self._entries
            message = np.concatenate([own[first : first + size] for own in (self.bin_rows, self.bin_parents)])
            bins[owner, : 2 * size] = array_module(bins).asarray(message)
        carrier.bin_ends[:] = 2 * self.bin_ends
        self.bin_ends[:] = 0
        return carrier.cross(level, phase, counts, sliced=sliced)

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """See ``Exchange.incoming``."""
        for message, _ in self._carrier.incoming():
            rows, parents = np.split(on_host(message), 2)
            yield rows, parents

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        raise NotImplementedError

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """See ``Exchange.abort``."""
        self._carrier.abort(number, cause, message, rank)

    def close(self) -> None:
        """See ``Exchange.close``."""
        self._carrier.close()
