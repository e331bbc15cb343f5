"""The workers' steps of writing tables of labels as Parquet files into one folder, a file from each rank.

A rank writes its file under a temporary name (``write_part``). When all ranks have written theirs, each renames its own
(``publish_part``). After a failure ``discard_part`` removes the files. ``dbfs.graph.tables`` submits these
functions as tasks. Each checks the worker's own configuration first.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dbfs.edges.writers.target import require_listed
from dbfs.errors import DbfsError, OutputError
from dbfs_workers.base.folder import Folder
from dbfs_workers.base.text import counted
from dbfs_workers.building.reading import require_wanted

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 1 << 20
"""Rows of a row group: many enough for readers to work in parallel, few enough for a cancelled task to end soon."""


def write_part(folder: Folder, token: str, rank: int, table: pa.Table, compression: str) -> None:
    """Write a rank's table under its temporary name; after an error no file is left.

    Args:
        folder: the folder, which is made if needed.
        token: unique to the call; temporary names contain it.
        table: its table of labels.
        compression: a compression of Parquet.

    Raises:
        OutputError: the folder has other files, or the file can't be written.
        InvalidOptionError: this worker's configuration does not allow the folder.
        RunCancelledError: the task was cancelled.
    """
    import pyarrow.parquet as pq

    require_listed(folder.path)
    folder.make()
    others = [name for name in folder.names() if token not in name]
    if others:
        there = f"{counted(len(others), 'file')} already, such as {others[0]}"
        raise OutputError(f"{folder.path} has {there}; delete the folder, or choose another")
    doing = f"writing {folder.path}"
    with folder.create(_temporary(token, rank)) as stream:
        options = _encodings(table.schema)
        with pq.ParquetWriter(stream, table.schema, compression=compression, **options) as writer:
            for first in range(0, table.num_rows, ROWS):
                require_wanted(doing)
                writer.write_table(table.slice(first, ROWS), row_group_size=ROWS)
        # The task may have been cancelled since, and the files discarded.
        require_wanted(doing)


def publish_part(folder: Folder, token: str, rank: int) -> None:
    """Give a rank's file its final name. Errors as for ``write_part``."""
    require_listed(folder.path)
    folder.rename(_temporary(token, rank), _final(rank))


def discard_part(folder: Folder, token: str, rank: int, published: bool) -> None:
    """Remove a rank's file if it is there, and the folder if it is empty; errors are ignored.

    Args:
        folder, token, rank: as of ``write_part``.
        published: whether the file may have its final name already.
    """
    with suppress(DbfsError):
        require_listed(folder.path)
        folder.remove(_temporary(token, rank))
        if published:
            folder.remove(_final(rank))
        if folder.local:
            with suppress(OSError):
                Path(folder.path).rmdir()


def _temporary(token: str, rank: int) -> str:
    # Readers of folders skip names that begin with a dot.
    return f".part-{rank:05d}-{token}"


def _final(rank: int) -> str:
    return f"part-{rank:05d}.parquet"


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of Parquet's encodings.

    Ascending integers and small distances are stored as differences. A file of integers was written at 450 MB/s on a
    core with them, half as large as at 390 MB/s without, and at 190 MB/s with pyarrow's choice, dictionaries.
    """
    import pyarrow as pa

    deltas = [name for name in ("vertex", "distance") if pa.types.is_integer(schema.field(name).type)]
    return {"use_dictionary": False, "column_encoding": dict.fromkeys(deltas, "DELTA_BINARY_PACKED")}
