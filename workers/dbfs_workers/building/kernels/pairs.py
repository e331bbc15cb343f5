"""The parser of lines of two ids, compiled by Numba: one call a block of text, one pass over the block's bytes.

``pairs.PairGrammar`` says what a line is. The parser takes lines of edges only, and gives up at the first byte that is
not as the grammar says; the caller then looks for comments, blank lines and wrong lines.
"""

import numpy as np
from numba import types

from dbfs_workers.base.jit import INT64, int64, kernel

_READ_UINT8 = types.Array(types.uint8, 1, "C", readonly=True)
_SPACE, _TAB, _RETURN, _LINE, _ZERO, _NINE, _QUOTE, _HASH, _BRACE = 32, 9, 13, 10, 48, 57, 34, 35, 123
# The separator of a run of spaces with at most one tab.
_EITHER = 0
# An id has at most 19 digits, which fit 64 bits without a sign.
_MOST_DIGITS = 19
_TEN = np.uint64(10)


@kernel(int64, _READ_UINT8, int64, int64, plain=True)
def _skip_blanks(text, at, separator):
    """Return the place of the first byte from ``at`` on that is no space, and no tab unless tabs separate columns."""
    if separator in (_TAB, _EITHER):
        while text[at] == _SPACE:
            at += 1
    else:
        while text[at] == _SPACE or text[at] == _TAB:
            at += 1
    return at


@kernel(int64, _READ_UINT8, int64, plain=True)
def _skip_line(text, at):
    """Return the place of the line's end, or of a byte that no line may have, from ``at`` on."""
    while text[at] != _LINE and text[at] != _RETURN and text[at] != 0:
        at += 1
    return at


@kernel(int64, _READ_UINT8, int64, int64, plain=True)
def _skip_gap(text, at, separator):
    """Return the place after the gap between two columns that begins at ``at``; -1 if there is none."""
    start = at
    at = _skip_blanks(text, at, separator)
    if separator == _SPACE:
        return at if at > start else -1
    if separator == _EITHER:
        # Two tabs enclose an empty column.
        if text[at] == _TAB:
            at += 1
        at = _skip_blanks(text, at, separator)
        return at if at > start else -1
    return _skip_blanks(text, at + 1, separator) if text[at] == separator else -1


@kernel(int64, _READ_UINT8, int64, int64, plain=True)
def _skip_marked(text, at, mark):
    """Return the end of the value between marks that begins at ``at``; -1 if its quotes don't enclose all of it."""
    if text[at] != _QUOTE:
        # Of most bytes two comparisons tell that the value goes on.
        while text[at] != mark and (
            text[at] > _RETURN or (text[at] != _LINE and text[at] != _RETURN and text[at] != 0)
        ):
            at += 1
        return at
    at += 1
    while text[at] != _QUOTE or text[at + 1] == _QUOTE:
        if text[at] == _LINE or text[at] == _RETURN or text[at] == 0:
            return -1
        at += 2 if text[at] == _QUOTE else 1
    return _skip_blanks(text, at + 1, mark)


@kernel(int64, _READ_UINT8, int64, int64, int64, int64, plain=True)
def _skip_rest(text, at, separator, tail, extra):
    """Return the start of the next line, given the end of the second id; -1 if the rest is not as the grammar says."""
    for _ in range(extra):
        if tail == _SPACE:
            at = _skip_gap(text, at, separator)
            if at < 0:
                return -1
            start = at
            if separator == _EITHER and text[at] == _BRACE:
                at = _skip_line(text, at)
            # What regular expressions call no space: neither a blank nor a line end, nor the other controls of ASCII.
            while text[at] > _SPACE or (text[at] != _SPACE and not 9 <= text[at] <= 13 and text[at] != 0):
                at += 1
            if at == start:
                return -1
        else:
            # Most values follow the mark at once: their first byte is past blanks and quotes.
            at = at + 1 if text[at] == tail and text[at + 1] > _QUOTE else _skip_gap(text, at, tail)
            if at >= 0:
                at = _skip_marked(text, at, tail)
            if at < 0:
                return -1
    # Most lines have no blanks at their end.
    if text[at] == _LINE:
        return at + 1
    start = at
    at = _skip_blanks(text, at, _SPACE)
    if separator == _EITHER and tail == _SPACE and at > start and text[at] == _HASH:
        at = _skip_line(text, at)
    if text[at] == _RETURN:
        at += 1
    return at + 1 if text[at] == _LINE else -1


@kernel(int64, _READ_UINT8, _READ_UINT8, int64, int64, int64, int64, int64, int64, INT64, INT64, plain=True)
def parse_pairs(text, prefix, separator, tail, low, high, right, extra, src, dst):
    """Parse whole lines of edges; return their number, or -1 if a line is none of an edge, or an id is out of range.

    Args:
        text: whole lines; the last byte is a line end.
        prefix: the word that starts each line; empty for none.
        separator, tail: as of ``PairGrammar``: bytes, 0 for an empty separator.
        low, high: as of ``PairGrammar``.
        right: as of ``PairGrammar``; -1 for None.
        extra: number of columns after the ids.
        src, dst: receive the ids less ``low``; an element for each 4 bytes of the text, and one more.
    """
    at, count = 0, 0
    shift = low if right < 0 else 2 * low - high - 1
    last = high if right < 0 else right
    while at < text.size:
        at = _skip_blanks(text, at, separator)
        if prefix.size > 0:
            for place in range(prefix.size):
                # The text ends in a line end, so that a word at its end differs before the text is over.
                if text[at + place] != prefix[place]:
                    return -1
            at = _skip_gap(text, at + prefix.size, separator)
            if at < 0:
                return -1
        for end in range(2):
            if end == 1:
                at = _skip_gap(text, at, separator)
                if at < 0:
                    return -1
            start = at
            value = np.uint64(0)
            while _ZERO <= text[at] <= _NINE:
                value = value * _TEN + np.uint64(text[at] - _ZERO)
                at += 1
                if at - start > _MOST_DIGITS:
                    return -1
            # A zero before other digits belongs to a code, such as 007, that is no number.
            if at == start or value < np.uint64(low) or (text[start] == _ZERO and at > start + 1):
                return -1
            if value > np.uint64(high if end == 0 else last):
                return -1
            if end == 0:
                src[count] = np.int64(value) - low
            else:
                dst[count] = np.int64(value) - shift
        at = _skip_rest(text, at, separator, tail, extra)
        if at < 0:
            return -1
        count += 1
    return count
