"""The base of the readers of tables in binary files: errors of the libraries, and the memory for a table's ids."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbfs.errors import DbfsError, FormatError, GraphTooLargeError, UnreadableFileError
from dbfs_workers.storage.reading import ReadLimits, require_room

# Bytes of memory for an integer that is read: as stored in the file, as an id, and in the data of the build.
_INTEGER_BYTES = 40


@contextmanager
def decoding(where: str, what: str) -> Iterator[None]:
    """Turn a library's errors about a file's bytes into dbfs's.

    Args:
        where: the file, and the part of it, for messages.
        what: the format, such as ``Parquet file``.

    Raises:
        FormatError: the bytes are not what the format says.
        GraphTooLargeError: the bytes ask for more memory than there is.
        UnreadableFileError: the machine or the network failed.
    """
    try:
        yield
    except DbfsError:
        raise
    except MemoryError as error:
        raise GraphTooLargeError(f"{where}: a part of the {what} takes more memory than there is ({error})") from error
    except Exception as error:
        # Libraries raise OSError for broken bytes too, without a number. Errors of the machine have one.
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableFileError(f"{where} can't be read: {error.strerror or reason}") from error
        raise FormatError(f"{where} is no valid {what}: {reason}") from error


class _SystemPool:
    """Arrow's memory pool while files are read: the C library's, which returns freed memory to the system.

    Arrow's own pools keep freed memory: after 4 million rows of Parquet, 1.3 times the partition built of them. The C
    library keeps small blocks between others, 16 MB after a million rows of strings; it is made to return them, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before: Any = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Make Arrow take memory from this pool until the last reader of this process is done."""
        import pyarrow as pa

        with self._lock:
            if not self._readers:
                self._before = pa.default_memory_pool()
                pa.set_memory_pool(pa.system_memory_pool())
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    pa.set_memory_pool(self._before)
            _return_freed()


SYSTEM_POOL = _SystemPool()


def _return_freed() -> None:
    """Make the C library return memory that it keeps for itself; does nothing if the library can't (glibc can)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def require_rows(where: str, rows: int, columns: int, limits: ReadLimits) -> None:
    """Refuse to read rows of ``columns`` integers, or references to strings, that the memory will not hold.

    Raises:
        FormatError: the number of rows is negative.
        GraphTooLargeError: this process has too little memory left.
    """
    if rows < 0:
        raise FormatError(f"{where} promises {rows} rows; expected 0 or more")
    require_room(rows * columns * _INTEGER_BYTES, limits.memory_share, f"{where}: reading its {rows:,} rows")


def decoded_bytes(column: Any) -> int:
    """Return the bytes that a column of an Arrow batch takes without its dictionary; 0 if it has none.

    A few bytes of a file may say that one long string is the value of a million rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or pa.types.is_integer(column.type.value_type):
        return 0
    lengths = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
