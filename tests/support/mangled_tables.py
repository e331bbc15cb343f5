"""Mangled tables and arrays: files that a valid one became by one change, with what the message must say.

Each corpus is a dictionary: name to (file name, bytes, options of ``from_file``, error, fragments of the message).
"""

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from dbfs.errors import DbfsError, EdgeInputError, FormatError, InvalidOptionError, TruncatedFileError

Mangled = tuple[str, bytes, dict[str, Any], type[DbfsError], str]
AB = {"source": "a", "target": "b"}


def parquet(columns: dict[str, Any], metadata: dict[str, str] | None = None, **options: Any) -> bytes:
    """Return a Parquet file of the columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), sink, **options)
    return sink.getvalue()


def arrow(columns: dict[str, Any], compression: str = "uncompressed", **options: Any) -> bytes:
    """Return an Arrow file of the columns."""
    sink = io.BytesIO()
    feather.write_feather(pa.table(columns), sink, compression, **options)
    return sink.getvalue()


def npy(array: Any) -> bytes:
    """Return an ``.npy`` file of the array."""
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def npy_header(header: str, version: bytes = b"\x01\x00", body: bytes = b"") -> bytes:
    """Return an ``.npy`` file with a header of this text."""
    text = header.encode("latin1").ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + body


def archive(**members: bytes) -> bytes:
    """Return a zip archive of the members, whose names lack ``.npy``."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return sink.getvalue()


def matrix(**changes: Any) -> bytes:
    """Return an archive of a sparse matrix 3 x 3 (0, 1), (1, 2), with arrays changed; None leaves an array out."""
    arrays = {
        "format": np.array(b"csr"),
        "shape": np.array([3, 3]),
        "indptr": np.array([0, 1, 2, 2], np.int32),
        "indices": np.array([1, 2], np.int32),
        "data": np.array([1, 1]),
    } | changes
    members = {
        name: value if isinstance(value, bytes) else npy(value) for name, value in arrays.items() if value is not None
    }
    return archive(**members)


def changed(content: bytes, at: int, new: bytes) -> bytes:
    """Return the content with the bytes from ``at`` on replaced; a negative ``at`` counts from the end."""
    at %= len(content)
    return content[:at] + new + content[at + len(new) :]


INTS = {"a": [1, 2, 3], "b": [4, 5, 6]}
NAMES = {"a": ["x", "y", "z"], "b": ["y", "z", "x"]}
_TABLES: dict[str, tuple[Any, dict[str, Any], type[DbfsError], str]] = {
    # Wrong in any format of typed columns: columns, options, error, fragment.
    "null": ({"a": [1, None, 3], "b": [4, 5, 6]}, {}, EdgeInputError, "row 1: column 'a' is null"),
    "null-name": ({"a": ["x", "y"], "b": [None, "x"]}, {}, EdgeInputError, "row 0: column 'b' is null"),
    "null-not-read": ({"a": ["x"], "b": ["y"], "c": [None]}, {}, EdgeInputError, "has 3 columns ('a', 'b', 'c')"),
    "all-null": ({"a": pa.nulls(2), "b": [1, 2]}, {}, EdgeInputError, "column 'a' holds null; ids are integers"),
    "nan": ({"a": [1.0, float("nan")], "b": [1, 2]}, {}, EdgeInputError, "column 'a' holds double; ids are integers"),
    "float": ({"a": pa.array([1.5], pa.float32()), "b": [1]}, {}, EdgeInputError, "column 'a' holds float; ids are"),
    "negative": ({"a": [1, 2], "b": [3, -7]}, {}, EdgeInputError, "row 1: column 'b' is -7; integer ids are 0 or more"),
    "past-int64": (
        {"a": pa.array([0, 2**63], pa.uint64()), "b": [1, 2]},
        {},
        EdgeInputError,
        "row 1: column 'a' is 9223372036854775808; the largest integer id is 9223372036854775807",
    ),
    "bool": ({"a": [True], "b": [False]}, {}, EdgeInputError, "column 'a' holds bool; ids are integers"),
    "time": ({"a": pa.array([0], pa.timestamp("us")), "b": [1]}, {}, EdgeInputError, "column 'a' holds timestamp[us]"),
    "binary": ({"a": [b"x"], "b": [b"y"]}, {}, EdgeInputError, "column 'a' holds binary; ids are"),
    "list": ({"a": [[1]], "b": [[2]]}, {}, EdgeInputError, "name a column for each part: source=['a', 'b']"),
    "ends-differ": ({"a": ["x"], "b": [1]}, {}, EdgeInputError, "column 'a' holds strings and column 'b' integers"),
    "parts-differ": (
        {"a": ["x"], "b": [1]},
        {"source": ["a", "b"], "target": ["b", "a"]},
        EdgeInputError,
        "column 'a' holds strings and column 'b' integers; both ends must have ids of one kind",
    ),
    "one-column": ({"a": [1]}, {}, EdgeInputError, "has 1 column ('a'); name those of an edge's ends by source= and"),
    "missing": (INTS, {"source": "a", "target": "bb"}, EdgeInputError, "has no column 'bb'; did you mean 'b'? Its col"),
    "half-named": (INTS, {"target": "b"}, InvalidOptionError, "source= is missing; name the columns of both ends"),
    "not-utf-8": (
        {"a": pa.array([b"ok", b"\xff\xfe"]).view(pa.string()), "b": ["x", "y"]},
        {},
        FormatError,
        "Invalid UTF8 sequence at string index 1",
    ),
}


def _typed(suffix: str, write: Callable[..., bytes]) -> dict[str, Mangled]:
    return {
        f"{suffix}-{name}": (f"a.{suffix}", write(columns), options, error, words)
        for name, (columns, options, error, words) in _TABLES.items()
    }


_PARQUET = parquet(INTS, row_group_size=2, compression="none", use_dictionary=False)
_FOOTER = int.from_bytes(_PARQUET[-8:-4], "little")
PARQUET: dict[str, Mangled] = _typed("parquet", parquet) | {
    name: ("a.parquet", content, options, error, words)
    for name, (content, options, error, words) in {
        "magic-only": (b"PAR1", {}, FormatError, "no valid Parquet file: Parquet file size is 4 bytes, smaller than"),
        "cut-in-half": (_PARQUET[: len(_PARQUET) // 2], {}, FormatError, "Parquet magic bytes not found in footer"),
        "end-cut": (_PARQUET[:-1], {}, FormatError, "Parquet magic bytes not found in footer"),
        "text-after": (_PARQUET + b"\n", {}, FormatError, "Parquet magic bytes not found in footer"),
        "footer-too-long": (changed(_PARQUET, -8, b"\xff\xff\xff\x7f"), {}, FormatError, "no valid Parquet file"),
        "footer-empty": (
            changed(_PARQUET, -8, b"\0\0\0\0"),
            {},
            FormatError,
            "no valid Parquet file: Couldn't deserialize",
        ),
        "footer-junk": (
            changed(_PARQUET, -8 - _FOOTER, b"\xff" * 20),
            {},
            FormatError,
            "no valid Parquet file: Couldn't deserialize thrift",
        ),
        "page-junk": (changed(_PARQUET, 4, b"\xff" * 30), {}, FormatError, "row group 0 is no valid Parquet file: "),
        "encrypted": (b"PARE" + _PARQUET[4:-4] + b"PARE", {}, FormatError, "an encrypted Parquet table; expected one"),
        "metadata-no-json": (
            parquet(INTS, {"dbfs": "x"}),
            {},
            FormatError,
            "its metadata 'dbfs' is b'x'; expected JSON",
        ),
        "metadata-negative": (
            parquet(INTS, {"dbfs": '{"n": -1, "directed": true}'}),
            {},
            FormatError,
            "expected JSON of name, n and directed",
        ),
        "as-text": (
            _PARQUET,
            {"format": "metis"},
            FormatError,
            "is 'parquet' by its first bytes; the option format says",
        ),
    }.items()
}

_ARROW = arrow(INTS, chunksize=2)
ARROW: dict[str, Mangled] = _typed("arrow", arrow) | {
    name: ("a.feather", content, options, error, words)
    for name, (content, options, error, words) in {
        "magic-only": (b"ARROW1", {}, FormatError, "no valid Arrow file: "),
        "cut-in-half": (_ARROW[: len(_ARROW) // 2], {}, FormatError, "no valid Arrow file: Not an Arrow file"),
        "end-cut": (_ARROW[:-1], {}, FormatError, "no valid Arrow file: Not an Arrow file"),
        "footer-length": (changed(_ARROW, -10, b"\xff\xff\xff\x7f"), {}, FormatError, "no valid Arrow file: "),
        "footer-negative": (changed(_ARROW, -10, b"\xff\xff\xff\xff"), {}, FormatError, "no valid Arrow file: "),
        "footer-junk": (changed(_ARROW, -60, b"\xff" * 40), {}, FormatError, "no valid Arrow file: "),
        "batch-junk": (
            changed(_ARROW, _ARROW.index(b"\xff\xff\xff\xff", 300) + 4, b"\x01"),
            {},
            FormatError,
            "Arrow file: ",
        ),
        "version-1": (b"FEA1" + b"\0" * 40 + b"FEA1", {}, FormatError, "a Feather table of version 1; write it again"),
        "lz4-junk": (
            changed(arrow(NAMES, "lz4"), arrow(NAMES, "lz4").index(b"\x04\x22\x4d\x18"), b"\0\0\0\0"),
            {},
            FormatError,
            "no valid Arrow file: ",
        ),
        "as-parquet": (_ARROW, {"format": "parquet"}, FormatError, "is 'arrow' by its first bytes; the option format"),
    }.items()
}

_PAIRS = npy(np.array([[1, 2], [3, 4], [5, 6]]))
_HEADER = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }"
_NPY: dict[str, tuple[bytes, dict[str, Any], type[DbfsError], str]] = {
    "magic-only": (b"\x93NUMPY", {}, FormatError, "no valid NumPy array: EOF: reading magic string"),
    "version": (npy_header(_HEADER, b"\x09\x00"), {}, FormatError, "version (9, 0) of the format is unknown"),
    "header-cut": (_PAIRS[:60], {}, FormatError, "no valid NumPy array: EOF: reading array header"),
    "header-no-dict": (npy_header("hello"), {}, FormatError, "no valid NumPy array: "),
    "header-code": (npy_header("__import__('os').abort()"), {}, FormatError, "no valid NumPy array: "),
    "header-keys": (npy_header("{'descr': '<i8'}"), {}, FormatError, "does not contain the correct keys"),
    "header-dtype": (npy_header(_HEADER.replace("<i8", "x9")), {}, FormatError, "not a valid dtype descriptor"),
    "header-shape": (npy_header(_HEADER.replace("(2, 2)", "'x'")), {}, FormatError, "shape is not valid"),
    "header-long": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 28), {}, FormatError, "no valid NumPy array: "),
    "shape-negative": (
        npy_header(_HEADER.replace("(2, 2)", "(-2, 2)")),
        {},
        FormatError,
        "the shape (-2, 2) has a size that is not 0 or more",
    ),
    "shape-huge": (
        npy_header(_HEADER.replace("(2, 2)", f"({2**50}, 2)")),
        {},
        TruncatedFileError,
        f"its header promises {2**50:,} rows, which take {2**54:,} bytes, and 0 follow",
    ),
    "cut": (_PAIRS[:-1], {}, TruncatedFileError, "its header promises 3 rows, which take 48 bytes, and 47 follow"),
    "text-after": (_PAIRS + b"\n", {}, FormatError, "its header promises 3 rows, which take 48 bytes, and 49 follow"),
    "pickled": (npy(np.array([[1, "x"]], object)), {}, FormatError, "holds pickled Python objects, which are not read"),
    "pickled-column": (
        npy(np.array([(1, "x")], [("a", "i8"), ("b", "O")])),
        {},
        FormatError,
        "holds pickled Python objects, which are not read: they could run any code",
    ),
    "one-dimension": (npy(np.arange(4)), {}, EdgeInputError, "holds an array of shape 4; expected m x 2"),
    "two-by-two": (
        npy(np.zeros((2, 2), int)),
        {},
        EdgeInputError,
        "an array of shape 2 x 2, which may have an edge in",
    ),
    "two-rows-cut": (npy(np.zeros((2, 5), int))[:-1], {}, TruncatedFileError, "its header promises 5 rows, which take"),
    "three-columns": (npy(np.zeros((5, 3), int)), {}, EdgeInputError, "holds an array of shape 5 x 3; expected m x 2"),
    "no-shape": (npy(np.array(5)), {}, EdgeInputError, "holds an array of shape (); expected m x 2"),
    "floats": (npy(np.zeros((3, 2))), {}, EdgeInputError, "column '0' holds double; ids are integers"),
    "bools": (npy(np.zeros((3, 2), bool)), {}, EdgeInputError, "column '0' holds bool; ids are"),
    "times": (npy(np.zeros((3, 2), "M8[s]")), {}, EdgeInputError, "column '0' holds timestamp[s]; ids are"),
    "complex": (npy(np.zeros((3, 2), complex)), {}, EdgeInputError, "column '0' holds complex128; expected ids"),
    "negative": (
        npy(np.array([[1, 2], [3, -4], [5, 6]])),
        {},
        EdgeInputError,
        "row 1: column '1' is -4; integer ids are 0 or",
    ),
    "past-int64": (
        npy(np.array([[1, 2**63]], np.uint64)),
        {},
        EdgeInputError,
        "row 0: column '1' is 9223372036854775808; the largest integer id",
    ),
    "no-names": (_PAIRS, AB, EdgeInputError, "has no column 'a'. Its columns: '0', '1'"),
    "surrogate": (
        npy(np.array([["a", "b"]])).replace(b"a\0\0\0", b"\x00\xd8\0\0"),
        {},
        EdgeInputError,
        "column '0' holds <U1; expected ids",
    ),
}
NPY: dict[str, Mangled] = {name: ("a.npy", *rest) for name, rest in _NPY.items()}

_ARCHIVE = matrix()
_NPZ: dict[str, tuple[bytes, dict[str, Any], type[DbfsError], str]] = {
    "magic-only": (b"PK\x03\x04", {}, FormatError, "no valid NumPy archive: "),
    "cut": (_ARCHIVE[:-10], {}, FormatError, "no valid NumPy archive: File is not a zip file"),
    "empty": (archive(), {}, FormatError, "is a binary file; expected text"),
    "no-arrays": (_ARCHIVE.replace(b"data.npy", b"data.txt"), {}, FormatError, "holds 'data.txt', which is no array"),
    "crc": (
        _ARCHIVE[: (at := _ARCHIVE.rindex(b"PK\x01\x02")) + 16] + b"\0\0\0\0" + _ARCHIVE[at + 20 :],
        {"directed": True},
        FormatError,
        "no valid NumPy archive: Bad CRC-32 for file 'data.npy'",
    ),
    "pickled": (
        archive(a=npy(np.array([None])), b=npy(np.array([None]))),
        {},
        FormatError,
        "array 'a.npy' holds pickled",
    ),
    "format-missing": (matrix(format=None), {}, EdgeInputError, "has 3 columns ('indptr', 'indices', 'data')"),
    "format-unknown": (
        matrix(format=np.array(b"bsr")),
        {},
        FormatError,
        "a sparse matrix of format 'bsr'; expected one",
    ),
    "format-number": (
        matrix(format=np.array(5)),
        {},
        FormatError,
        "a sparse matrix of format '5'; expected one of csr",
    ),
    "shape-missing": (matrix(shape=None), {}, FormatError, "no sparse matrix: it has no small array 'shape'"),
    "not-square": (
        matrix(shape=np.array([3, 4])),
        {},
        FormatError,
        "the matrix must be square (one row per vertex), not 3",
    ),
    "shape-floats": (matrix(shape=np.array([3.0, 3.0])), {}, FormatError, "the matrix must be square"),
    "shape-one": (matrix(shape=np.array(3)), {}, FormatError, "the matrix must be square (one row per vertex), not 3"),
    "shape-negative": (
        matrix(shape=np.array([-3, -3])),
        {},
        FormatError,
        "the matrix has -3 rows or columns; expected",
    ),
    "indptr-missing": (
        matrix(indptr=None),
        {},
        FormatError,
        "a sparse matrix of format 'csr' needs the array 'indptr'",
    ),
    "data-missing": (matrix(data=None), {}, FormatError, "a sparse matrix of format 'csr' needs the array 'data'"),
    "indices-floats": (matrix(indices=np.zeros(2)), {}, FormatError, "the indices of the matrix must be integers"),
    "indices-two-dimensions": (matrix(indices=np.zeros((2, 1), int)), {}, FormatError, "needs the array 'indices'"),
    "indptr-short": (
        matrix(indptr=np.array([0, 2])),
        {"directed": True},
        FormatError,
        "its indptr does not divide 2 entries into 3 rows",
    ),
    "indptr-falls": (
        matrix(indptr=np.array([0, 2, 1, 2])),
        {"directed": True},
        FormatError,
        "its indptr does not divide 2 entries into 3 rows",
    ),
    "indptr-past-end": (matrix(indptr=np.array([0, 1, 2, 9])), {}, FormatError, "no valid NumPy archive: "),
    "index-past-end": (
        matrix(indices=np.array([1, 3])),
        {"directed": True},
        FormatError,
        "entry 1 is in row or column 3; the matrix is 3 x 3",
    ),
    "index-negative": (
        matrix(indices=np.array([-1, 2])),
        {"directed": False},
        FormatError,
        "entry 0 is in row or column -1; the matrix is 3 x 3",
    ),
    "data-short": (
        matrix(data=np.array([1])),
        {"directed": True},
        FormatError,
        "has 2 indices and 1 values; expected as many of each",
    ),
    "array-cut": (
        matrix(data=npy(np.ones(9))[:-8]),
        {"directed": True},
        TruncatedFileError,
        "array 'data' holds 64 bytes; its header promises 72",
    ),
    "array-too-long": (
        matrix(indices=npy(np.array([1, 2])) + b"xxxx"),
        {"directed": True},
        FormatError,
        "array 'indices' holds more than the 16 bytes that its header promises",
    ),
    "note": (matrix(dbfs=np.array("x")), {}, FormatError, "its array 'dbfs' is no JSON with directed"),
    "lengths": (
        archive(a=npy(np.arange(2)), b=npy(np.arange(3))),
        {},
        FormatError,
        "arrays of the shapes 'a' 2, 'b' 3",
    ),
    "columns-floats": (archive(a=npy(np.ones(2)), b=npy(np.ones(2))), {}, EdgeInputError, "column 'a' holds double"),
    "columns-named": (_ARCHIVE, AB, InvalidOptionError, "source= and target= name columns of a table"),
    "columns-negative": (
        archive(a=npy(np.array([0, -1])), b=npy(np.arange(2))),
        {},
        EdgeInputError,
        "row 1: column 'a' is -1; integer ids are 0 or more",
    ),
    "columns-missing": (archive(a=npy(np.arange(2))), AB, EdgeInputError, "has no column 'b'. Its columns: 'a'"),
}
NPZ: dict[str, Mangled] = {name: ("a.npz", *rest) for name, rest in _NPZ.items()}

_CSV: dict[str, tuple[str | bytes, dict[str, Any], type[DbfsError], str]] = {
    "no-rows": (
        "a,b\n",
        {"format": "csv"},
        TruncatedFileError,
        "holds no edges; expected rows after the line of column",
    ),
    "no-header": (
        "# x\n\n",
        {"format": "csv"},
        TruncatedFileError,
        "ends before its header; expected a line of column",
    ),
    "three-columns": (
        "a,b,c\nx,y,z\n",
        {},
        EdgeInputError,
        "has 3 columns ('a', 'b', 'c'); name those of an edge's ends",
    ),
    "missing-column": (
        "a,b\nx,y\n",
        {"source": "a", "target": "c"},
        EdgeInputError,
        "has no column 'c'. Its columns: 'a'",
    ),
    "same-names": (
        "a,a\nx,y\n",
        {"source": "a", "target": "a"},
        EdgeInputError,
        "has 2 columns named 'a'; expected one",
    ),
    "half-named": ("a,b\nx,y\n", {"source": "a"}, InvalidOptionError, "target= is missing"),
    "short-row": (
        "a,b\nx,y\nz\n",
        {},
        FormatError,
        "line 3: 'z': 1 column; expected 2 as in the line of column names",
    ),
    "long-row": ("a,b\nx,y\nx,y,z\n", {}, FormatError, "line 3: 'x,y,z': 3 columns; expected 2"),
    "empty-value": ("a,b\nx,y\nx,\n", {}, FormatError, "line 3: 'x,': column 'b': the target is missing"),
    "blank-value": ("a,b\nx,y\n  ,y\n", {}, FormatError, "line 3: '  ,y': column 'a': the source is missing"),
    "quoted-empty": ('a,b\nx,y\n"",y\n', {}, FormatError, "line 3: '\"\",y': column 'a': the source is missing"),
    "kinds": ("a,b\nx,1\n", {}, EdgeInputError, "column 'a' holds strings and column 'b' integers in the first rows"),
    "name-among-numbers": (
        "a,b\n" + "1,2\n" * 200 + "x,3\n",
        AB,
        FormatError,
        "line 202: 'x,3': column 'a': id 'x' is not a plain decimal integer; the first rows hold integers",
    ),
    "float-among-numbers": (
        "a,b\n" + "1,2\n" * 200 + "1,2.0\n",
        AB,
        FormatError,
        "line 202: '1,2.0': column 'b': '2.0' is a float and no id",
    ),
    "na-among-numbers": (
        "a,b\n" + "1,2\n" * 200 + "NA,2\n",
        AB,
        FormatError,
        "line 202: 'NA,2': column 'a': 'NA' stands for a missing value",
    ),
    "missing-number": (
        "a,b\n" + "1,2\n" * 200 + ",2\n",
        AB,
        FormatError,
        "line 202: ',2': column 'a': the source is missing",
    ),
    "hexadecimal": (
        "a,b\n" + "1,2\n" * 200 + "0x1,2\n",
        AB,
        FormatError,
        "line 202: '0x1,2': column 'a': id '0x1' is not",
    ),
    "negative": (
        "a,b\n" + "1,2\n" * 200 + "1,-2\n",
        AB,
        FormatError,
        "line 202: '1,-2': column 'b': id '-2' is negative",
    ),
    "past-int64": (
        "a,b\n" + "1,2\n" * 200 + f"{2**63},2\n",
        AB,
        FormatError,
        "line 202: '9223372036854775808,2': column 'a'",
    ),
    "past-uint64": (
        "a,b\n" + "1,2\n" * 200 + f"{2**65},2\n",
        AB,
        FormatError,
        "is past 2^63-1; the first rows hold integers",
    ),
    "line-break": (
        'a,b\nx,y\n"x\ny",z\n',
        {},
        FormatError,
        "line 3: '\"x': a line break within quotes; pass pandas.read_csv",
    ),
    "hidden-line-break": ('a,b\nx,y\nx"y,"a\nb"\n', {}, FormatError, "line 3: 'x\"y,\"a': a line break within quotes"),
    "open-quote": ('a,b\nx,y\nx,"y\n', {}, FormatError, "line 3: 'x,\"y': a line break within quotes"),
    "text-after-quote": ('a,b\nx,y\n"x"z,y\n', {}, FormatError, "line 3: '\"x\"z,y': ',' expected after '\"'"),
    "nul": ("a,b\nx,y\nx\0,y\n", {}, FormatError, "line 3: 'x\\x00,y': a NUL byte; expected text"),
    "carriage-return": (
        "a,b\nx,y\nx,y\rz,z\n",
        {},
        FormatError,
        "line 3: 'x,y\\rz,z': a carriage return within a line",
    ),
    "not-utf-8": (b"a,b\nx,y\nx,\xff\n", {}, FormatError, "line 3: 'x,\ufffd': a byte that is not UTF-8"),
    "utf-16": ("a,b\nx,y\n".encode("utf-16"), {}, FormatError, "is this a binary file or UTF-16?"),
    "other-separator": ("a,b\nx,y\nx;y\n", {}, FormatError, "line 3: 'x;y': 1 column; expected 2"),
    "long-line": ("a,b\nx,y\n" + "x" * 1_100_000 + ",y\n", {}, FormatError, "line 3: 'xxx"),
    "as-parquet": (
        "a,b\nx,y\n",
        {"format": "parquet"},
        FormatError,
        "is no parquet file by its first bytes; the option",
    ),
}
CSV: dict[str, Mangled] = {
    name: ("a.csv", text.encode() if isinstance(text, str) else text, options, error, message)
    for name, (text, options, error, message) in _CSV.items()
}
CORPORA = {"parquet": PARQUET, "arrow": ARROW, "npy": NPY, "npz": NPZ, "csv": CSV}
VALID: dict[str, tuple[str, bytes]] = {
    "parquet": ("a.parquet", _PARQUET),
    "parquet-names": ("a.parquet", parquet(NAMES)),
    "arrow": ("a.arrow", _ARROW),
    "arrow-names": ("a.arrow", arrow(NAMES, "lz4")),
    "npy": ("a.npy", _PAIRS),
    "npz": ("a.npz", _ARCHIVE),
    "npz-columns": ("a.npz", archive(a=npy(np.arange(3)), b=npy(np.arange(3)))),
    "csv": ("a.csv", b'a,b\nx,y\n"z",x\r\n\n'),
    "zstd": ("a.csv.zst", b""),
}
_sink = pa.BufferOutputStream()
with pa.CompressedOutputStream(_sink, "zstd") as _stream:
    _stream.write(b"a,b\nx,y\n" * 50)
VALID["zstd"] = ("a.csv.zst", _sink.getvalue().to_pybytes())
