"""Lines of a text source: blocks of whole lines, byte ranges on line boundaries, numbers of a header.

No function here holds more text than a block and the longest line.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dbfs.edges.readers.source import Source, has_control, is_utf8
from dbfs.errors import FormatError, TruncatedFileError
from dbfs_workers.building.reading import Reading

T = TypeVar("T")

# 1 MiB: Python's overhead per block is negligible, and a block's text and tables stay far below a worker's memory.
BLOCK_BYTES = 1 << 20
# Part of a block in which a wrong line is looked for one by one: in about 0.1 s.
SLICE_BYTES = 1 << 16
# Longest line of a format of pairs. Binary junk without a line end is refused before it fills memory.
LINE_BYTES = 1 << 20
INT64_MAX = (1 << 63) - 1
# Places of a text at which lines are counted, and the bytes read at each.
_SAMPLES = 32
_SAMPLE_BYTES = 1 << 16
# Bytes at the beginning of a compressed text in which lines are counted: at most half a second of decompression.
_BEGINNING_BYTES = 1 << 23


@dataclass(frozen=True)
class Line:
    """A line of a file.

    Attributes:
        number: 1-based.
        start, end: byte range, with the line end.
        text: bytes of the line, without the line end.
    """

    number: int
    start: int
    end: int
    text: bytes

    def wrong(self, path: str, reason: object) -> FormatError:
        """Return the error for this line of a file; see ``bad_line``."""
        return bad_line(path, self.number, self.text, str(reason))

    def parsed(self, path: str, parse: Callable[[bytes], T]) -> T:
        """Return what ``parse`` makes of this line of a file.

        Raises:
            FormatError: ``parse`` raised ``LineError``.
        """
        try:
            return parse(self.text)
        except LineError as error:
            raise self.wrong(path, error) from None


class LineError(ValueError):
    """A line breaks its format. Holds the reason, for a message that also names file and line."""


def bad_line(path: str, number: int, text: bytes, reason: str) -> FormatError:
    """Return the error for one line: file, line number, the text (shortened), and what is wrong or expected."""
    shown = text[:60].decode("utf-8", "replace")
    return FormatError(f"{path}, line {number}: {shown!r}{'...' if len(text) > 60 else ''}: {reason}")


def unreadable(text: bytes) -> str | None:
    """Return why a line (without its line end) isn't text with ``\\n`` or ``\\r\\n`` line ends; None if it is."""
    if b"\0" in text:
        return "a NUL byte; expected text in ASCII or UTF-8, is this a binary file or UTF-16?"
    if b"\r" in text:
        if has_control(text) or not is_utf8(text):
            return "a carriage return among binary data; expected text in ASCII or UTF-8, is this a binary file?"
        return "a carriage return within a line; expected line ends \\n or \\r\\n"
    return None


def count_lines(source: Source, stop: int, reading: Reading) -> int:
    """Count the line ends in the text's first ``stop`` bytes. Reads them all."""
    return sum(chunk.count(b"\n") for chunk in source.chunks(0, stop, size=BLOCK_BYTES, look=reading.look))


def blocks(
    source: Source, start: int, stop: int | None, reading: Reading, line_bytes: int = LINE_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yield the text from ``start`` to ``stop`` (None: the end) in blocks of whole lines; both are starts of lines.

    Args:
        source: the file.
        start, stop: byte range of the text.
        reading: the read, whose limits the text is held to.
        line_bytes: longest line.

    Yields:
        A block's offset in the text, and its bytes. They end with a line end, added to the file's last line if missing.

    Raises:
        FormatError: a line is longer than ``line_bytes``, or much text holds few edges.
        GraphTooLargeError, RunCancelledError, DeadlineExceededError: see ``Reading.take_text``.
    """
    parts: list[bytes] = []
    pending = 0
    for chunk in source.chunks(start, stop, size=BLOCK_BYTES, look=reading.look):
        reading.take_text(len(chunk), pending + len(chunk))
        cut = chunk.rfind(b"\n") + 1
        if cut:
            text = b"".join((*parts, chunk[:cut]))
            yield start, text
            start += len(text)
            parts, pending = [], 0
        parts.append(chunk[cut:])
        pending += len(chunk) - cut
        if pending > line_bytes:
            number = count_lines(source, start, reading) + 1
            raise bad_line(source.path, number, b"".join(parts), f"longer than {line_bytes} bytes")
    if rest := b"".join(parts):
        yield start, rest + b"\n"


def slices(block: bytes) -> Iterator[bytes]:
    """Yield a block of whole lines in parts of whole lines, each of ``SLICE_BYTES`` or a little more."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + SLICE_BYTES - 1) + 1 or len(block)
        yield block[start:end]
        start = end


def each_line(source: Source, offset: int, block: bytes, reading: Reading, parse: Callable[[bytes], T]) -> Iterator[T]:
    """Yield what ``parse`` makes of each line (without line end) of the block at ``offset``.

    Raises:
        FormatError: ``parse`` raised ``LineError``; the message names the line.
    """
    for index, line in enumerate(io.BytesIO(block)):
        text = line.removesuffix(b"\n")
        try:
            found = parse(text)
        except LineError as error:
            number = count_lines(source, offset, reading) + index + 1
            raise bad_line(source.path, number, text.removesuffix(b"\r"), str(error)) from None
        yield found


def parsed(
    blocks: Iterable[tuple[int, bytes]],
    reading: Reading,
    fast: Callable[[bytes], T | None],
    slow: Callable[[int, bytes], T],
) -> Iterator[tuple[bytes, T]]:
    """Yield lines and what they hold: each of some blocks (see ``blocks``), whole or in slices.

    ``fast`` returns None for lines of which one is, or may be, wrong; ``slow`` then parses the slice that has it, given
    its offset in the text.
    """
    for offset, block in blocks:
        whole = fast(block)
        if whole is not None:
            yield block, whole
            continue
        for part in slices(block):
            reading.look()
            found = fast(part)
            yield part, slow(offset, part) if found is None else found
            offset += len(part)


def line_start(source: Source, at: int, reading: Reading, line_bytes: int = LINE_BYTES) -> int:
    """Return the first start of a line at or after byte ``at`` (at least 1) of a seekable source; its size if none.

    Raises:
        FormatError: a line is longer than ``line_bytes``.
    """
    begin = at = at - 1
    for chunk in source.chunks(at, size=1 << 16, look=reading.look):
        if found := chunk.find(b"\n") + 1:
            return at + found
        at += len(chunk)
        if at - begin > line_bytes:
            number = count_lines(source, begin, reading) + 1
            raise bad_line(source.path, number, chunk, f"a line longer than {line_bytes} bytes")
    return at


def split_points(source: Source, body: int, pieces: int) -> list[int]:
    """Return byte offsets that divide the text from ``body`` on into at most ``pieces`` equal ranges.

    The offsets are ascending, without ``body`` and the size, and in general not on line boundaries. A source that can't
    be read from the middle has none.
    """
    if not source.seekable or source.size is None:
        return []
    text = source.size - body
    # A line of an edge has at least 4 bytes: bounds the pieces if a header promises too many edges.
    pieces = min(pieces, text // 4)
    return [body + text * i // pieces for i in range(1, pieces)]


def lines_by_samples(source: Source, body: int) -> int | None:
    """Estimate the number of lines from byte ``body`` on, by the line ends in evenly spaced samples of the text.

    A compressed text can't be read in the middle: its first 8 MiB stand for the rest, lines and compression alike.
    Exact for a text of up to 2 MiB, and a compressed one of up to 8 MiB; None for a longer one of unknown size.

    Errors as for ``Source.chunks``.
    """
    if not source.seekable or source.size is None:
        return _lines_by_beginning(source, body)
    read, ends, last = 0, 0, b"\n"
    for start in range(body, source.size, max(_SAMPLE_BYTES, (source.size - body) // _SAMPLES)):
        for chunk in source.chunks(start, min(start + _SAMPLE_BYTES, source.size), size=_SAMPLE_BYTES):
            read, ends, last = read + len(chunk), ends + chunk.count(b"\n"), chunk[-1:]
    if read == source.size - body:
        return ends + (last != b"\n")
    # A sample without a line end is of lines longer than the sample.
    return round((source.size - body) * max(ends, 1) / read)


def _lines_by_beginning(source: Source, body: int) -> int | None:
    """See ``lines_by_samples``."""
    text, stored = source.beginning(body + _BEGINNING_BYTES)
    ends = text.count(b"\n", body)
    if len(text) < body + _BEGINNING_BYTES:
        return ends + (not text.endswith(b"\n"))
    if source.size is None:
        return None
    return round((len(text) * source.size / stored - body) * max(ends, 1) / (len(text) - body))


def require_bytes(source: Source, body: int, least: int, promised: str) -> None:
    """Raise ``TruncatedFileError`` for a file too small for the edges of its header. Compressed files are not checked.

    Args:
        source: the file.
        body: offset of the text after the header.
        least: fewest bytes that the promised edges take, the last line end included.
        promised: the header's numbers, for the message.
    """
    if source.seekable and source.size is not None and source.size - body + 1 < least:
        raise TruncatedFileError(
            f"{source.path} ends too early: its header promises {promised}, which take at least {least} bytes, "
            f"and {max(source.size - body, 0)} follow"
        )


def header_number(source: Source, line: Line, token: bytes, what: str) -> int:
    """Return a number in a header, 0 to 2^63-1.

    Raises:
        FormatError: the token is not such a number; ``what`` names it in the message.
    """
    if not re.fullmatch(rb"[0-9]{1,19}", token) or int(token) > INT64_MAX:
        shown = token[:40].decode("utf-8", "replace")
        raise line.wrong(source.path, f"{what} is {shown!r}; expected an integer, 0 to 2^63-1")
    return int(token)
