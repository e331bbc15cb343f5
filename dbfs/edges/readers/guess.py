"""The format of a file, by its header if that is unmistakable, else by its name."""

import re
from pathlib import PurePosixPath

from dbfs.edges.readers.head import Head
from dbfs.edges.readers.matrix_market import BANNER
from dbfs.edges.readers.options import COMMENTS
from dbfs.errors import FormatError, TruncatedFileError

_BY_NAME = {
    "matrix-market": (".mtx", ".mm"),
    "metis": (".graph", ".metis"),
    "edge-list": (".txt", ".csv", ".tsv", ".el", ".wel", ".edges", ".edgelist", ".snap"),
    "gr": (".gr",),
    "adjacency-list": (".adjlist",),
    "ncol": (".ncol",),
}
_KONECT = "out."

# Blank lines and comments of all formats.
_PASSED_OVER = re.compile(rb"(?:\n++|[ \t]*+(?:(?:#|%|//|c[ \t])[^\n\r\0]*+|c)?+\r?+\n)*+")
_EDGE = re.compile(rb"[0-9]++(?:\s*+[,;]\s*+|\s++)[0-9]++(?:[\s,;]|$)")


def guess_format(head: Head, *, lines: bool = False) -> str:
    """Return the name of a file's format: a key of ``readers.FORMATS``.

    Args:
        head: the first lines.
        lines: whether a file whose name says nothing has an edge in each line.

    A METIS header looks like an edge, so that format is recognised by the name alone.

    Raises:
        FormatError: neither name nor header identifies a format; the message lists the formats.
        TruncatedFileError: the name identifies no format, and the file holds only comments.
    """
    source = head.source
    name = source.bare_name
    named = next((each for each, suffixes in _BY_NAME.items() if PurePosixPath(name).suffix in suffixes), None)
    if named is None and (lines or name.startswith(_KONECT)):
        named = "edge-list"
    for line in head.lines(_PASSED_OVER):
        text = line.text.strip()
        if line.number == 1 and BANNER.match(text):
            return "matrix-market"
        if re.fullmatch(rb"p\s++(?:tw|sp)\s++\S++\s++\S++", text):
            return "gr"
        if named is not None and named != "edge-list":
            return named
        if text and text != b"c" and not text.startswith((*COMMENTS, b"c ")):
            if named is None and not _EDGE.match(text):
                raise FormatError(
                    f"{source.path}, line {line.number}: neither the name nor this line identifies the format; pass it "
                    f"as the option format, one of {', '.join((*_BY_NAME, 'csv'))}"
                )
            return "edge-list"
    if named is None:
        raise TruncatedFileError(f"{source.path} holds only comments; expected edges")
    return named
