"""The kernel of an envoy's crossing: small frames between hosts are sent and received without a return to Python.

A level of a road network has a frame of a few hundred bytes between two hosts. Python takes longer over such a frame
than the frame is on its way. The kernel crosses as ``across_hosts`` describes, with the same frames, as long as nothing
unusual comes. Otherwise the kernel returns ``HANDED_OVER``, and Python finishes the crossing: frames that are large or
carry slices, TLS, a frame that ends a run, a connection that broke, a long wait.

A kernel that crosses by itself takes ``Frames``. ``links`` has a row for each other host:

| word | content | written by |
| --- | --- | --- |
| ``DESCRIPTOR`` | file descriptor of the connection; -1 if only Python may send and receive over it | Python |
| ``FILLED`` | bytes that have arrived of the other host's next frames | both |
| ``SENT`` | 1 once the crossing's frame is on its way | both |
| ``UNSENT`` | bytes at the end of that frame that Python has yet to send | both |
| ``CAME`` | 1 once the other host's frame of the crossing has come | both |
| ``FIRST``, ``LAST`` | place of the other host's ranks in ``ranks`` | Python |
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import load_acquire, receive_now, send_now, wait_for_readable
from dbfs_workers.base.jit import INT64, READ_INT64, int64, kernel, named, void
from dbfs_workers.search.exchange.kernels.barrier import (
    ABORTED,
    CROSSED,
    END,
    NO_YIELD,
    RUN_SHIFT,
    give_way,
    publish,
    wait,
    wait_for_rank,
)
from dbfs_workers.search.exchange.kernels.bins import place_of_bin
from dbfs_workers.search.exchange.kernels.frames import HEADER_WORDS, compose, count_new, deliver, is_of
from dbfs_workers.search.exchange.segment import ABORT
from dbfs_workers.search.exchange.stream import LENGTH
from dbfs_workers.search.reports.crossings import COUNTS

HANDED_OVER: Final = 5
"""Beside the results of ``kernels.barrier.wait``: Python has to finish the crossing."""

DESCRIPTOR, FILLED, SENT, UNSENT, CAME, FIRST, LAST = range(7)
LINK: Final = 7


class Frames(NamedTuple):
    """What an envoy has of its frames; empty arrays for other ranks.

    Attributes:
        links: int64[links * LINK], see above.
        ranks: int64[p], the ranks of this host, then those of the other hosts by link.
        words: int64[links * 2 * words], by link the frame to send, then what has arrived.
        polled: int64[links], scratch.
    """

    links: NDArray[np.int64]
    ranks: NDArray[np.int64]
    words: NDArray[np.int64]
    polled: NDArray[np.int64]

    @classmethod
    def none(cls) -> "Frames":
        """Return what a rank has that exchanges no frames."""
        return cls(*(np.zeros(0, np.int64) for _ in cls._fields))


FRAMES: Final = named(Frames, *(INT64,) * 4)

LARGEST: Final = 1 << 16
"""Bytes of the largest frame that the kernel sends."""

# A waiting envoy looks at its connections _LOOKS times, with _YIELDS yields of the core between two looks, then sleeps.
_LOOKS = 4
_YIELDS = 200
_SLEEPS = 4
_SLEEP_MS = 5

# States of a frame.
_NOT_YET, _DONE, _UNUSUAL = 0, 1, 2


@kernel(void, END, INT64, READ_INT64, READ_INT64, int64, int64, int64)
def copy_entries(end, frame, senders, receivers, tag, predecessors, sends):
    """Copy the entries of bins that a header announces: from the segment behind the header (``sends``), or back.

    Args:
        end, tag, predecessors: see ``cross``.
        frame: the header, and room for the entries.
        senders, receivers: the ranks that the header is about.
        sends: 1 for the frame to send; 0 for one that has come.
    """
    width = COUNTS + receivers.size
    payload = frame.view(np.uint32)[2 * (HEADER_WORDS + senders.size * width) :]
    p = end.bin_ends.size
    at = 0
    for i in range(senders.size):
        for j in range(receivers.size):
            count = frame[HEADER_WORDS + i * width + COUNTS + j]
            for part in range(1 + predecessors):
                start = place_of_bin(senders[i], receivers[j], part, tag, end.body_words, end.entries, p)
                if sends:
                    for k in range(count):
                        payload[at + k] = end.bodies[start + k]
                else:
                    for k in range(count):
                        end.bodies[start + k] = payload[at + k]
                at += count


@kernel(int64, END, FRAMES, int64, int64, int64)
def send_frame(end, frames, tag, predecessors, link):
    """Send this host's frame over a link. Return ``_DONE``, or ``_UNUSUAL`` if Python has to send it, or its end.

    Arguments are those of ``cross``; ``link`` is the row of the link.
    """
    links, ranks = frames.links, frames.ranks
    at = link * LINK
    if links[at + DESCRIPTOR] < 0:
        return _UNUSUAL
    own, others = ranks[: links[FIRST]], ranks[links[at + FIRST] : links[at + LAST]]
    size = HEADER_WORDS + own.size * (COUNTS + others.size)
    half = frames.words.size // (frames.polled.size * 2)
    frame = frames.words[2 * link * half : (2 * link + 1) * half]
    new = compose(end.words, end.stride, tag, own, others, frame)
    length = new * (8 if predecessors else 4)
    if 8 * size + length > LARGEST:
        return _UNUSUAL
    frame[LENGTH] = length
    if new:
        copy_entries(end, frame, own, others, tag, predecessors, 1)
    sent = send_now(links[at + DESCRIPTOR], frame, 0, 8 * size + length)
    if sent < 0:
        return _UNUSUAL
    links[at + SENT] = 1
    links[at + UNSENT] = 8 * size + length - sent
    return _UNUSUAL if links[at + UNSENT] else _DONE


@kernel(int64, END, FRAMES, int64, int64, int64)
def receive_frame(end, frames, tag, predecessors, link):
    """Receive what has come over a link; publish the records of the other host if its frame is complete.

    Arguments are those of ``cross``; ``link`` is the row of the link. Returns ``_DONE`` for a complete frame,
    ``_UNUSUAL`` if Python has to look at what has come.
    """
    links, ranks = frames.links, frames.ranks
    at = link * LINK
    own, others = ranks[: links[FIRST]], ranks[links[at + FIRST] : links[at + LAST]]
    size = HEADER_WORDS + others.size * (COUNTS + own.size)
    half = frames.words.size // (frames.polled.size * 2)
    frame = frames.words[(2 * link + 1) * half : (2 * link + 2) * half]
    filled = links[at + FILLED]
    if filled < 8 * size or filled < 8 * size + frame[LENGTH]:
        came = receive_now(links[at + DESCRIPTOR], frame, filled, 8 * half)
        if came < 0:
            return _NOT_YET
        if came == 0:
            return _UNUSUAL
        filled += came
        links[at + FILLED] = filled
        if filled < 8 * size:
            return _NOT_YET
    if not is_of(frame, tag):
        return _UNUSUAL
    new = count_new(frame, others.size, own.size, end.entries)
    length = new * (8 if predecessors else 4)
    if new < 0 or frame[LENGTH] != length or 8 * size + length > 8 * half:
        return _UNUSUAL
    whole = 8 * size + length
    if filled < whole:
        return _NOT_YET
    if new:
        copy_entries(end, frame, others, own, tag, predecessors, 0)
    deliver(end.words, end.stride, frame, others, own, tag)
    # What has come of the next frame. Frames are whole numbers of uint32 words, but a part may end anywhere.
    bytes_of = frame.view(np.uint8)
    for k in range(filled - whole):
        bytes_of[k] = bytes_of[whole + k]
    links[at + FILLED] = filled - whole
    links[at + CAME] = 1
    return _DONE


@kernel(types.UniTuple(int64, 2), END, FRAMES, int64, int64, int64, int64)
def cross(end, frames, tag, predecessors, sliced, largest):
    """Cross as any rank does, and exchange frames with other hosts.

    Args:
        end: this rank's end of the exchange.
        frames: its frames.
        tag: this crossing.
        predecessors: 1 if the entries of bins have parents, else 0.
        sliced: 1 if the frames carry slices.
        largest: see ``kernels.barrier.wait``.

    Returns:
        What ``kernels.barrier.wait`` returns; or (HANDED_OVER, rank) if Python has to finish the crossing.
    """
    words, stride, record, rank = end.words, end.stride, end.record, end.rank
    gathered, timeout, backoff, links, polled = end.gathered, end.timeout, end.backoff, frames.links, frames.polled
    if backoff[NO_YIELD]:
        backoff[NO_YIELD] -= 1
    for link in range(polled.size):
        links[link * LINK + SENT] = links[link * LINK + UNSENT] = links[link * LINK + CAME] = 0
    publish(words, stride, record, end.bin_ends, tag, rank)
    for peer in frames.ranks[: links[FIRST]]:
        status = wait_for_rank(words, stride, record, tag, rank, peer, gathered, timeout, backoff)
        if status != CROSSED:
            return status, peer
    if sliced:
        return HANDED_OVER, rank
    unusual = 0
    for link in range(polled.size):
        unusual |= send_frame(end, frames, tag, predecessors, link) == _UNUSUAL
    if unusual:
        return HANDED_OVER, rank
    looks = 0
    slept = 0
    while True:
        late = 0
        for link in range(polled.size):
            at = link * LINK
            polled[link] = -1
            if links[at + CAME] == 0:
                came = receive_frame(end, frames, tag, predecessors, link)
                if came == _UNUSUAL:
                    return HANDED_OVER, rank
                if came == _NOT_YET:
                    late += 1
                    polled[link] = links[at + DESCRIPTOR]
        if late == 0:
            break
        if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:
            return ABORTED, rank
        looks += 1
        if looks > _LOOKS and backoff[NO_YIELD] == 0 and looks <= _LOOKS + _YIELDS:
            give_way(backoff)
        elif looks > _LOOKS:
            slept += 1
            if slept > _SLEEPS:
                return HANDED_OVER, rank
            wait_for_readable(polled, _SLEEP_MS)
    return wait(words, stride, record, tag, rank, 0, gathered, timeout, backoff, largest)
