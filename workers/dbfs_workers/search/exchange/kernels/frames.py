"""Kernels of the envoys: the header of a frame out of the records of a host's ranks, and these records out of it.

The frame of a crossing has the number of the run, the number of the crossing and the run's digest; the frame of an
abort has the run's number, the cause and the rank that caused it. Both have room for what only a crossing's frame has:
for each sending rank its counts and, for each receiving rank, the entries of its bin.
"""

from dbfs_workers.base.jit import INT64, READ_INT64, int64, kernel, void
from dbfs_workers.search.exchange.kernels.barrier import arrive
from dbfs_workers.search.exchange.segment import ENDS, RECORDS, RUN
from dbfs_workers.search.reports.crossings import COUNTS

# Word 0 is the payload's length: see ``stream``.
KIND, NUMBER, CROSSING, DIGEST = 1, 2, 3, 4
CAUSE, RANK = CROSSING, DIGEST
HEADER_WORDS = 5

# Kinds of frames.
CROSSED, ABORTED = 1, 2


def header_words(senders: int, receivers: int) -> int:
    """Return the size, in words, of the header of a frame, from the numbers of ranks on the two hosts."""
    return HEADER_WORDS + senders * (COUNTS + receivers)


@kernel(int64, INT64, int64, int64, READ_INT64, READ_INT64, INT64)
def compose(words, stride, tag, senders, receivers, header):
    """Write the header of a crossing's frame, all but the payload's length; return the number of entries of bins.

    Args:
        words: the head of the segment.
        stride: words of a rank's part of the head.
        tag: the crossing.
        senders: the ranks of this host, which have arrived.
        receivers: the ranks of the other host.
        header: int64[HEADER_WORDS + senders * (COUNTS + receivers)]
    """
    total = 0
    at = HEADER_WORDS
    at_record = RECORDS + (tag & 1) * ((stride - RECORDS) >> 1)
    header[KIND], header[NUMBER], header[CROSSING] = CROSSED, tag >> 32, tag & 0xFFFFFFFF
    for sender in senders:
        record = sender * stride + at_record
        header[DIGEST] = words[record + RUN]
        for c in range(COUNTS):
            header[at + c] = words[record + 1 + c]
        at += COUNTS
        for j in range(receivers.size):
            entries = words[record + ENDS + receivers[j]]
            header[at + j] = entries
            total += entries
        at += receivers.size
    return total


@kernel(int64, READ_INT64, int64)
def is_of(header, tag):
    """Return 1 if a header is that of the frame of a crossing; 0 if it is of another one, or of an abort."""
    return int(header[KIND] == CROSSED and header[NUMBER] == tag >> 32 and header[CROSSING] == tag & 0xFFFFFFFF)


@kernel(int64, READ_INT64, int64, int64, int64)
def count_new(header, senders, receivers, most):
    """Return the number of entries that a header announces; -1 if they do not fit in their bins.

    Args:
        header: the header of the other host's frame.
        senders: number of ranks of the other host.
        receivers: number of ranks of this host.
        most: entries that fit in a bin.
    """
    total = 0
    for k in range(senders * receivers):
        entries = header[HEADER_WORDS + k // receivers * (COUNTS + receivers) + COUNTS + k % receivers]
        if entries < 0 or entries > most:
            return -1
        total += entries
    return total


@kernel(void, INT64, int64, READ_INT64, READ_INT64, READ_INT64, int64)
def deliver(words, stride, header, senders, receivers, tag):
    """Publish the records of the ranks of another host in this host's segment, as if those ranks had arrived here.

    Args:
        words: the head of the segment.
        stride: words of a rank's part of the head.
        header: the header of the other host's frame.
        senders: the ranks of the other host.
        receivers: the ranks of this host.
        tag: this crossing.
    """
    at = HEADER_WORDS
    at_record = RECORDS + (tag & 1) * ((stride - RECORDS) >> 1)
    for sender in senders:
        record = sender * stride + at_record
        words[record + RUN] = header[DIGEST]
        for c in range(COUNTS):
            words[record + 1 + c] = header[at + c]
        at += COUNTS
        for j in range(receivers.size):
            words[record + ENDS + receivers[j]] = header[at + j]
        at += receivers.size
        arrive(words, stride, tag, sender)
