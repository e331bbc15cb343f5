"""CPU kernels of a batch: a vertex has a bit for each source, in words of 64 (Then et al., VLDB 2014).

Vertex ``i`` has the words ``i * width`` to ``(i + 1) * width - 1`` of an array. Bitmaps have a bit a vertex, as in
``cpu_kernels``; a vertex whose bit is clear has no bit set in its words. Ids are internal ids but for rows.
"""

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import fetch_or, prefetch, trailing_zeros
from dbfs_workers.base.jit import (
    FLOAT64,
    INT32,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_UINT32,
    UINT8,
    UINT32,
    int64,
    kernel,
    void,
)

UINT64 = types.Array(types.uint64, 1, "C")

# Columns by which prefetches of words are ahead.
_AHEAD = 32


@kernel(int64, types.uint64)
def lowest_bit(word):
    """Return the index of the lowest set bit of a word, which must not be 0."""
    low = np.uint32(word & np.uint64(0xFFFFFFFF))
    if low:
        return np.int64(trailing_zeros(low))
    return np.int64(32) + trailing_zeros(np.uint32(word >> np.uint64(32)))


@kernel(int64, types.uint64)
def count_bits(word):
    """Return the number of set bits of a word."""
    word -= word >> np.uint64(1) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (word >> np.uint64(2) & np.uint64(0x3333333333333333))
    word = word + (word >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64(word * np.uint64(0x0101010101010101) >> np.uint64(56))


@kernel(int64, READ_INT64, READ_INT64, int64, int64, READ_UINT32, UINT64, UINT64, UINT32)
def choose(starts, ends, first_id, width, live, front, sources, chosen):
    """Choose the rows of the rank's frontier that have a bit of some sources; return the sum of their degrees.

    Args:
        starts, ends, first_id, width, front: see ``push``.
        live: uint32, bitmap of the rank's frontier by row.
        sources: uint64[width], the sources' bits.
        chosen: uint32, bitmap by row, zeros; set.
    """
    edges = 0
    for w in range(live.size):
        bits = live[w]
        while bits:
            row = w * 32 + np.int64(trailing_zeros(bits))
            bits &= bits - np.uint32(1)
            some = np.uint64(0)
            for i in range(width):
                some |= front[(first_id + row) * width + i] & sources[i]
            if some:
                edges += ends[row] - starts[row]
                chosen[w] |= np.uint32(1) << np.uint32(row & 31)
    return edges


@kernel(void, READ_UINT32, int64, int64, types.uint64, UINT64, UINT32, types.boolean)
def push_word(columns, k, stop, word, found, marked, shared):
    """Add the only word of a row to those of its neighbours: see ``push``. Without loops over words twice as fast."""
    for edge in range(k, stop):
        if edge + _AHEAD < stop:
            prefetch(found, columns[edge + _AHEAD])
        u = columns[edge]
        at, bit = u >> np.uint32(5), np.uint32(1) << (u & np.uint32(31))
        if not shared:
            found[u] |= word
            marked[at] |= bit
            continue
        if word & ~found[u]:
            fetch_or(found, np.int64(u), word)
        if not marked[at] & bit:
            fetch_or(marked, np.int64(at), bit)


@kernel(types.Tuple((int64, types.uint64)), READ_UINT32, int64, int64, UINT64, types.uint64)
def pull_word(columns, k, stop, front, lacking):
    """Search a row's in-neighbours for the bits of its only word; return where it ended, and the bits found."""
    some = np.uint64(0)
    while k < stop and lacking & ~some:
        if k + _AHEAD < columns.size:
            prefetch(front, columns[k + _AHEAD])
        some |= front[columns[k]]
        k += 1
    return k, some


@kernel(int64, READ_INT64, READ_INT64, READ_UINT32, int64, int64, READ_UINT32, UINT64, UINT64, UINT32, types.boolean)
def push(starts, ends, columns, first_id, width, live, front, found, marked, shared):
    """Add the bits of rows of the rank's frontier to the neighbours' words in ``found``, and mark these vertices.

    Args:
        starts, ends, columns: the rank's rows.
        first_id: internal id of row 0.
        width: words of a vertex.
        live: uint32, bitmap of the rows.
        front: uint64, the frontier's words.
        found: uint64, updated.
        marked: uint32, bitmap, updated.
        shared: whether other threads push at the same time.

    Returns:
        The number of edges.
    """
    edges = 0
    for w in range(live.size):
        bits = live[w]
        while bits:
            row = w * 32 + np.int64(trailing_zeros(bits))
            bits &= bits - np.uint32(1)
            base = (first_id + row) * width
            edges += ends[row] - starts[row]
            if width == 1:
                push_word(columns, starts[row], ends[row], front[base], found, marked, shared)
                continue
            for k in range(starts[row], ends[row]):
                if k + _AHEAD < ends[row]:
                    prefetch(found, np.int64(columns[k + _AHEAD]) * width)
                u = columns[k]
                at, word, bit = np.int64(u) * width, np.int64(u >> np.uint32(5)), np.uint32(1) << (u & np.uint32(31))
                if not shared:
                    for i in range(width):
                        found[at + i] |= front[base + i]
                    marked[word] |= bit
                    continue
                for i in range(width):
                    if front[base + i] & ~found[at + i]:
                        fetch_or(found, at + i, front[base + i])
                if not marked[word] & bit:
                    fetch_or(marked, word, bit)
    return edges


@kernel(
    int64,
    READ_INT64,
    READ_INT64,
    READ_UINT32,
    int64,
    int64,
    UINT64,
    READ_UINT32,
    UINT64,
    UINT64,
    UINT64,
    UINT32,
    UINT64,
)
def pull(starts, ends, columns, first_id, width, wanted, live, front, seen, found, marked, lacking):
    """Search the in-neighbours of each of the rank's rows for bits that the row lacks; return the edges looked at.

    A row is done once it has all bits that are wanted.

    Args:
        starts, ends, columns: the in-edges of the rank's rows.
        first_id, width: see ``push``.
        seen: uint64, by row.
        wanted: uint64[width], the bits that rows look for.
        live: uint32, bitmap of the whole frontier.
        front: uint64, its words.
        found: uint64, updated for the rank's rows.
        marked: uint32, bitmap of the rank's rows, updated.
        lacking: uint64[2 * width], working memory.
    """
    edges = 0
    for row in range(starts.size):
        k, stop = starts[row], ends[row]
        mine, at = row * width, (first_id + row) * width
        left = np.uint64(0)
        for i in range(width):
            lacking[i] = wanted[i] & ~seen[mine + i]
            lacking[width + i] = 0
            left |= lacking[i]
        if not left:
            continue
        edges -= k
        if width == 1:
            k, lacking[1] = pull_word(columns, k, stop, front, left)
        while width > 1 and k < stop and left:
            # The next row's columns are behind this one's, unless an update has moved the row.
            if k + _AHEAD < columns.size:
                prefetch(front, np.int64(columns[k + _AHEAD]) * width)
            u = columns[k]
            k += 1
            if not live[u >> np.uint32(5)] >> (u & np.uint32(31)) & np.uint32(1):
                continue
            base = np.int64(u) * width
            left = np.uint64(0)
            for i in range(width):
                lacking[width + i] |= front[base + i]
                left |= lacking[i] & ~lacking[width + i]
        edges += k
        new = np.uint64(0)
        for i in range(width):
            word = lacking[i] & lacking[width + i]
            found[at + i] |= word
            new |= word
        if new:
            marked[row >> 5] |= np.uint32(1) << np.uint32(row & 31)
    return edges


@kernel(types.UniTuple(int64, 4), READ_INT64, READ_INT64, int64, int64, UINT32, UINT64, UINT64, UINT64, INT64)
def settle(starts, ends, first_id, width, marked, seen, found, planes, counts):
    """Reduce ``found`` to the new bits of the rank's rows, which become seen; unmark the rows without any.

    The rows of all sources are counted at once, without a branch by the data: of two rows' words and plane ``b``, which
    has bit ``b`` of each source's count, the sum stays there, and the carry is one of two for plane ``b + 1``.

    Args:
        starts, ends, first_id, width: see ``push``.
        marked: uint32, bitmap of the rank's rows, updated.
        seen: uint64, by row, updated.
        found: uint64, updated.
        planes: uint64[width * 65], zeros; working memory.
        counts: int64[width * 64], zeros; set to the number of rows that each source has reached.

    Returns:
        (rows, the sum of their degrees, bits, the sum of the degrees times the bits).
    """
    rows = degrees = pairs = edges = 0
    # Behind the planes, for each of them the first one of two words, and the carry.
    waiting, carry = 32 * width, 64 * width
    for w in range(marked.size):
        bits = marked[w]
        while bits:
            row = w * 32 + np.int64(trailing_zeros(bits))
            bits &= bits - np.uint32(1)
            reached = 0
            for i in range(width):
                at = (first_id + row) * width + i
                word = found[at] & ~seen[row * width + i]
                found[at] = word
                seen[row * width + i] |= word
                planes[carry + i] = word
                reached += count_bits(word)
            if not reached:
                marked[w] ^= np.uint32(1) << np.uint32(row & 31)
                continue
            plane, twos = 0, rows
            while twos & 1:
                for i in range(plane, plane + width):
                    one, other = planes[waiting + i], planes[carry + i - plane]
                    odd = planes[i] ^ one
                    planes[carry + i - plane] = planes[i] & one | odd & other
                    planes[i] = odd ^ other
                plane += width
                twos >>= 1
            for i in range(width):
                planes[waiting + plane + i] = planes[carry + i]
            rows += 1
            degrees += ends[row] - starts[row]
            pairs += reached
            edges += reached * (ends[row] - starts[row])
    for b in range(32):
        if not rows >> b:
            break
        for place in range(counts.size):
            plane, bit = b * width + (place >> 6), np.uint64(place & 63)
            counts[place] += np.int64(planes[plane] >> bit & np.uint64(1)) << b
            if rows >> b & 1:
                counts[place] += np.int64(planes[waiting + plane] >> bit & np.uint64(1)) << b
    return rows, degrees, pairs, edges


@kernel(void, int64, UINT32, UINT64)
def clear(width, live, front):
    """Clear a bitmap, and the words of its vertices."""
    for w in range(live.size):
        bits = live[w]
        live[w] = 0
        while bits:
            base = (w * 32 + np.int64(trailing_zeros(bits))) * width
            bits &= bits - np.uint32(1)
            for i in range(width):
                front[base + i] = 0


@kernel(types.UniTuple(int64, 2), int64, int64, int64, READ_UINT32, UINT64, UINT32, UINT32)
def pack(width, vertex, end, bits, words, bin_rows, bin_parents):
    """Write the words of a bitmap's vertices into a bin, as far as it holds them.

    Consecutive vertices have one entry in common, with the first one and their number. Each of their words follows as
    an entry.

    Args:
        width: words of a vertex.
        vertex, end: the first vertex that is written, and the one after the last.
        bits: uint32, bitmap.
        words: uint64, the words.
        bin_rows, bin_parents: uint32, the bin.

    Returns:
        (the next vertex to write, the entries of the bin).
    """
    at = 0
    head = -1
    while vertex < end:
        rest = bits[vertex >> 5] >> np.uint32(vertex & 31)
        if not rest & np.uint32(1):
            head = -1
            vertex += np.int64(trailing_zeros(rest)) if rest else 32 - (vertex & 31)
            continue
        if at + width + (head < 0) > bin_rows.size:
            return vertex, at
        if head < 0:
            head = at
            bin_rows[at] = vertex
            bin_parents[at] = 0
            at += 1
        bin_parents[head] += 1
        for i in range(width):
            word = words[vertex * width + i]
            bin_rows[at] = np.uint32(word & np.uint64(0xFFFFFFFF))
            bin_parents[at] = np.uint32(word >> np.uint64(32))
            at += 1
        vertex += 1
    return vertex, at


@kernel(void, int64, READ_UINT32, READ_UINT32, UINT32, UINT64)
def unpack(width, bin_rows, bin_parents, bits, words):
    """Add the words that ``pack`` wrote into a bin to those of a bitmap's vertices."""
    at = 0
    while at < bin_rows.size:
        vertex, count = np.int64(bin_rows[at]), np.int64(bin_parents[at])
        at += 1
        for place in range(vertex, vertex + count):
            bits[place >> 5] |= np.uint32(1) << np.uint32(place & 31)
        for place in range(vertex * width, (vertex + count) * width):
            words[place] |= np.uint64(bin_parents[at]) << np.uint64(32) | np.uint64(bin_rows[at])
            at += 1


@kernel(void, UINT8, int64, int64, int64)
def write_distance(distances, place, item, distance):
    """Write a distance into a table of numbers of ``item`` bytes, the lowest byte first."""
    for byte in range(item):
        distances[place * item + byte] = np.uint8(distance >> 8 * byte & 255)


@kernel(void, int64, int64, int64, READ_UINT32, UINT64, int64, UINT8, int64, INT32, FLOAT64, FLOAT64)
def note(distance, first_id, width, marked, found, sources, distances, item, nearest, terms, sums):
    """Note the distance of the rows that ``settle`` has left marked.

    Args:
        first_id, width, marked, found: see ``settle``.
        distances: uint8, the bytes of a table [rows, sources] of numbers of ``item`` bytes; empty for none.
        item: 1, 2 or 4.
        nearest: int32, by row the distance of the nearest source, -1 for none, and the source; empty for none.
        terms: float64, what each new bit adds to each of a row's sums; empty for no sums.
        sums: float64, the sums by row.
    """
    for w in range(marked.size):
        bits = marked[w]
        while bits:
            row = w * 32 + np.int64(trailing_zeros(bits))
            bits &= bits - np.uint32(1)
            reached = 0
            for i in range(width):
                word = found[(first_id + row) * width + i]
                reached += count_bits(word)
                if word and nearest.size and nearest[2 * row] < 0:
                    nearest[2 * row] = distance
                    nearest[2 * row + 1] = i * 64 + lowest_bit(word)
                if distances.size:
                    while word:
                        write_distance(distances, row * sources + i * 64 + lowest_bit(word), item, distance)
                        word &= word - np.uint64(1)
            for i in range(terms.size):
                sums[row * terms.size + i] += reached * terms[i]


@kernel(void, int64, int64, int64, READ_UINT32, UINT64, int64, INT32)
def note_targets(distance, first_id, width, rows, found, sources, distances):
    """Note the distance of some rows in a table int32[rows, sources]; other arguments as of ``note``."""
    for place in range(rows.size):
        for i in range(width):
            word = found[(first_id + rows[place]) * width + i]
            while word:
                distances[place * sources + i * 64 + lowest_bit(word)] = distance
                word &= word - np.uint64(1)


@kernel(void, READ_INT32, int64, int64, INT64, int64, UINT64, UINT8, int64, INT32, FLOAT64, FLOAT64)
def take_labels(labels, source, sources, counts, width, seen, distances, item, nearest, terms, sums):
    """Take the labels of one source's traversal into a batch: see ``note``.

    Args:
        labels: int32, by row the distance, -1 unreached.
        source: the source's place in the batch.
        counts: int64, zeros; set to the number of rows by distance.
        width, seen: see ``settle``; ``seen`` is empty for none.
        distances, item, nearest: see ``note``. Sources are taken in their order.
        terms: float64, by distance what is added to each of a row's sums.
        sums: float64, the sums by row; empty for none.
    """
    of_row = sums.size // labels.size
    for row in range(labels.size):
        distance = np.int64(labels[row])
        if distance < 0:
            continue
        counts[distance] += 1
        if seen.size:
            seen[row * width + (source >> 6)] |= np.uint64(1) << np.uint64(source & 63)
        if distances.size:
            write_distance(distances, row * sources + source, item, distance)
        if nearest.size and (nearest[2 * row] < 0 or distance < nearest[2 * row]):
            nearest[2 * row] = distance
            nearest[2 * row + 1] = source
        for i in range(of_row):
            sums[row * of_row + i] += terms[distance * of_row + i]
