"""The exchange of levels on the host by NCCL, with a stand-in for it: what ranks bin arrives, and is gone then."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dbfs_workers.search.cuda.communicator import INLINE
from dbfs_workers.search.exchange.hosted import HostedExchange
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Sum
from tests.support.gang import PATIENCE
from tests.support.nccl import FakeLibrary, Messenger, Network, NumpyMessages, Stream

P, CROSSINGS = 3, 6


@pytest.mark.parametrize("entries", [None, 4, 9])
def test_bins_of_any_size_arrive_with_their_parents(entries: int | None) -> None:
    """Of None the carrier is that of the layout 1d, whose bins stay until they are reset; of others that of a grid."""
    stripe, network, messenger = Stripe(3 * 3 * INLINE, P), Network(), Messenger()
    carriers: list[NcclExchange] = []
    for rank in range(P):
        stream: Stream = []
        carriers.append(NcclExchange(stripe, rank, messenger.send, FakeLibrary(network, stream), entries))
        carriers[-1].allocate(NumpyMessages(stripe, rank, stream))
    room = carriers[0].entries // 2
    sizes = np.random.default_rng(2).choice([0, 1, room // 2, room], (CROSSINGS, P, P))
    sizes[0], sizes[1] = room, 0

    def values(crossing: int, rank: int, owner: int) -> np.ndarray:
        return 1000 * (crossing * P * P + rank * P + owner) + np.arange(sizes[crossing, rank, owner], dtype=np.uint32)

    def cross(rank: int) -> None:
        exchange: HostedExchange = carriers[rank].on_host()
        exchange.begin("run", 1, time.monotonic() + PATIENCE)
        exchange.reset(True)
        for crossing in range(CROSSINGS):
            for owner in {*range(P)} - {rank}:
                sent = values(crossing, rank, owner)
                place = slice(owner * room, owner * room + sent.size)
                exchange.bin_rows[place], exchange.bin_parents[place] = sent, sent + 7
                exchange.bin_ends[owner] = sent.size
            assert exchange.cross(crossing, "test", Sum(rank), sliced=False).total == 3
            assert not exchange.bin_ends.any()
            peers = [peer for peer in range(P) if peer != rank and sizes[crossing, peer, rank]]
            found = [(rows.tolist(), parents.tolist()) for rows, parents in exchange.incoming() if parents is not None]
            wanted = [values(crossing, peer, rank) for peer in peers]
            assert sorted(found) == sorted((rows.tolist(), (rows + 7).tolist()) for rows in wanted)

    with ThreadPoolExecutor(P) as pool:
        offers = [carrier.offer() for carrier in carriers]
        list(pool.map(lambda carrier: carrier.connect(offers), carriers))
        list(pool.map(cross, range(P)))
    for carrier in carriers:
        carrier.on_host().close()
