"""The head of a file: the text up to its first edge, in which the client finds format, header and direction.

The head is decompressed once and has a limit, whatever its comments: the client reads it before any deadline runs.
"""

import re
from collections.abc import Iterator

from dbfs.edges.readers.lines import LINE_BYTES, Line, bad_line, unreadable
from dbfs.edges.readers.source import START_BYTES, Source, require_text
from dbfs.errors import FormatError

HEAD_BYTES = 1 << 26
"""Most bytes of text before the first edge."""

HEAD_LINES = 1 << 16
"""Most lines before the first edge that a reader looks at. A pattern passes over other comments much faster."""

_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 16


class Head:
    """The first lines of a file, for several looks at them.

    Args:
        source: the file.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._chunks = source.chunks(size=_CHUNK_BYTES)
        self._text = bytearray()
        self._more()
        require_text(source.path, bytes(self._text[:START_BYTES]))

    def lines(self, passed_over: re.Pattern[bytes]) -> Iterator[Line]:
        """Yield the lines from the first one, except lines after it that a pattern matches.

        Args:
            passed_over: matches any number of whole lines with their line ends, in linear time.

        Raises:
            FormatError: the head is longer than ``HEAD_BYTES`` or ``HEAD_LINES``; or a line is longer than
                ``LINE_BYTES``, or has a NUL byte or a carriage return inside.
        """
        number, start = 1, len(_BOM) if self._text.startswith(_BOM) else 0
        seen = start
        for _ in range(HEAD_LINES):
            # The text grows by chunks, and the last line of a chunk may be a part of a line.
            while (end := self._text.find(b"\n", seen)) < 0 and self._more():
                seen = max(start, len(self._text) - _CHUNK_BYTES)
                if len(self._text) - start > LINE_BYTES:
                    text = bytes(self._text[start:])
                    raise bad_line(self.source.path, number, text, f"a line longer than {LINE_BYTES} bytes")
            if end < 0 and start == len(self._text):
                return
            # The last line may lack its line end; ``end`` is then one byte too far, which no reader reads.
            line = Line(number, start, (len(self._text) if end < 0 else end) + 1, self._line(start, end))
            if reason := unreadable(line.text):
                raise bad_line(self.source.path, number, line.text, reason)
            yield line
            number, start = number + 1, min(line.end, len(self._text))
            while True:
                found = passed_over.match(self._text, start)
                passed = start if found is None else found.end()
                number, start = number + self._text.count(b"\n", start, passed), passed
                if self._text.find(b"\n", start) >= 0 or len(self._text) - start > LINE_BYTES or not self._more():
                    break
            seen = start
        raise FormatError(
            f"{self.source.path}, line {number}: {HEAD_LINES:,} lines of comments and no edge; expected edges"
        )

    def mean_line(self, start: int) -> float:
        """Return the mean length in bytes of the lines from byte ``start`` on: of at least one, in about 64 KiB."""
        while len(self._text) - start < _CHUNK_BYTES and self._more():
            pass
        sample = self._text[start : start + _CHUNK_BYTES]
        # Part of a line would make the mean too large; the file's last line may lack its line end.
        whole = sample[: sample.rfind(b"\n") + 1] or sample
        return max(len(whole), 1) / max(whole.count(b"\n"), 1)

    def _line(self, start: int, end: int) -> bytes:
        return bytes(self._text[start:] if end < 0 else self._text[start:end]).removesuffix(b"\r")

    def _more(self) -> bool:
        """Read one more chunk; return whether there was one."""
        if len(self._text) > HEAD_BYTES:
            raise FormatError(
                f"{self.source.path}: no edge in the first {HEAD_BYTES >> 20} MiB of its text; "
                "expected fewer comments and blank lines before the edges"
            )
        chunk = next(self._chunks, b"")
        self._text += chunk
        return bool(chunk)
