"""The envoy's kernel by itself: which frames it takes, and which it leaves to Python."""

import socket

import numpy as np
import pytest

from dbfs_workers.search.exchange.kernels import envoy as kernels
from dbfs_workers.search.exchange.kernels import frames
from dbfs_workers.search.exchange.kernels.barrier import End
from dbfs_workers.search.exchange.segment import Segment
from dbfs_workers.search.exchange.stream import LENGTH
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import COUNTS

RUN, CROSSING = 5, 9
SIZE = frames.HEADER_WORDS + COUNTS + 1


@pytest.mark.parametrize(
    ("kind", "number", "crossing", "length", "taken"),
    [
        (frames.CROSSED, RUN, CROSSING, 0, True),
        (frames.CROSSED, RUN, CROSSING - 2, 0, False),
        (frames.CROSSED, RUN, CROSSING + 1, 0, False),
        (frames.CROSSED, RUN - 1, CROSSING, 0, False),
        (frames.ABORTED, RUN, CROSSING, 0, False),
        # The header announces no entries.
        (frames.CROSSED, RUN, CROSSING, 4, False),
    ],
)
def test_only_the_frame_of_this_crossing_is_taken(
    kind: int, number: int, crossing: int, length: int, taken: bool
) -> None:
    segment = Segment.create(Stripe(100, 2), 8, "graph")
    ours, theirs = socket.socketpair()
    frame = np.zeros(SIZE, np.int64)
    frame[LENGTH], frame[frames.KIND], frame[frames.NUMBER], frame[frames.CROSSING] = length, kind, number, crossing
    theirs.sendall(frame.tobytes() + bytes(length))
    links = np.zeros(kernels.LINK, np.int64)
    links[kernels.DESCRIPTOR], links[kernels.FIRST], links[kernels.LAST] = ours.fileno(), 1, 2
    unused = np.zeros(8, np.int64)
    end = End(
        segment.bodies,
        segment.body_words,
        8,
        segment.words,
        segment.stride,
        unused,
        unused,
        0,
        unused,
        unused,
        unused,
        1,
    )
    arrivals = kernels.Frames(links, np.array([0, 1]), np.zeros(2 * 64, np.int64), np.zeros(1, np.int64))
    status = kernels.receive_frame(end, arrivals, RUN << 32 | CROSSING, 0, 0)
    arrived = int(segment.words[segment.stride])
    assert (status == kernels._DONE, links[kernels.CAME]) == (taken, taken)
    assert arrived == (RUN << 32 | CROSSING if taken else 0)
    ours.close()
    theirs.close()
    segment.close()


def test_a_header_that_announces_more_than_bins_hold_is_refused() -> None:
    header = np.zeros(frames.HEADER_WORDS + 2 * (COUNTS + 3), np.int64)
    places = [
        frames.HEADER_WORDS + sender * (COUNTS + 3) + COUNTS + receiver for sender in (0, 1) for receiver in range(3)
    ]
    header[places] = np.arange(6)
    assert frames.count_new(header, 2, 3, 5) == 15
    assert frames.count_new(header, 2, 3, 4) == -1
    header[places[2]] = -1
    assert frames.count_new(header, 2, 3, 5) == -1
