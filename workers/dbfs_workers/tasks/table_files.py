"""Tasks that write tables as Parquet files into one folder, a file from each rank.

A rank writes its file under a temporary name (``write_part``). When all ranks have written theirs, each renames its own
(``publish_part``). After a failure ``discard_part`` removes what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dbfs_workers.errors import DbfsError, OutputError
from dbfs_workers.storage.reading import require_wanted

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 1 << 20
"""Rows of a row group: many enough for readers to work in parallel, few enough for a cancelled task to end soon."""


@dataclass(frozen=True)
class TableFolder:
    """The folder of the files that one call writes.

    Attributes:
        url: absolute path, or a URL of fsspec.
        token: unique to the call; temporary names contain it.
        options: options of fsspec's file system.
    """

    url: str
    token: str
    options: dict[str, Any] = field(default_factory=dict)

    def opened(self) -> tuple[Any, str]:
        """Return the file system and the folder's path there."""
        import fsspec

        system, path = fsspec.core.url_to_fs(self.url, **self.options)
        return system, path.rstrip("/")

    def temporary(self, path: str, rank: int) -> str:
        """Return the path of a rank's file while it is written. Readers of folders skip names that begin with a dot."""
        return f"{path}/.part-{rank:05d}-{self.token}"

    def final(self, path: str, rank: int) -> str:
        """Return the path of a rank's file."""
        return f"{path}/part-{rank:05d}.parquet"


def write_part(folder: TableFolder, rank: int, table: pa.Table, compression: str) -> None:
    """Write a rank's table under its temporary name; after an error no file is left.

    Raises:
        OutputError: the folder has files already, or the file can't be written.
        RunCancelledError: the task was cancelled.
    """
    import pyarrow.parquet as pq

    doing = f"writing {folder.url}"
    with _explained(folder, rank):
        system, path = folder.opened()
        system.makedirs(path, exist_ok=True)
        _require_empty(folder, system, path)
        temporary = folder.temporary(path, rank)
        try:
            with (
                system.open(temporary, "wb") as stream,
                pq.ParquetWriter(stream, table.schema, compression=compression, **_encodings(table.schema)) as writer,
            ):
                for first in range(0, table.num_rows, ROWS):
                    require_wanted(doing)
                    writer.write_table(table.slice(first, ROWS), row_group_size=ROWS)
            # The task may have been cancelled since, and the files discarded.
            require_wanted(doing)
        except BaseException:
            with suppress(Exception):
                system.rm_file(temporary)
            raise


def publish_part(folder: TableFolder, rank: int) -> None:
    """Give a rank's file its final name.

    Raises:
        OutputError: the file can't be renamed.
    """
    with _explained(folder, rank):
        system, path = folder.opened()
        system.mv(folder.temporary(path, rank), folder.final(path, rank))


def discard_part(folder: TableFolder, rank: int, published: bool) -> None:
    """Remove a rank's file if it is there, and the folder if it is empty; errors are ignored.

    Args:
        folder: the folder.
        rank: the rank.
        published: whether the file may have its final name already.
    """
    with suppress(Exception):
        system, path = folder.opened()
        names = [folder.temporary(path, rank), *([folder.final(path, rank)] if published else [])]
        for name in names:
            with suppress(Exception):
                system.rm_file(name)
        system.rmdir(path)


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of Parquet's encodings.

    Ascending integers and small distances are stored as differences. A file of integers was written at 450 MB/s on a
    core with them, half as large as at 390 MB/s without, and at 190 MB/s with pyarrow's choice, dictionaries.
    """
    import pyarrow as pa

    deltas = [name for name in ("vertex", "distance") if pa.types.is_integer(schema.field(name).type)]
    return {"use_dictionary": False, "column_encoding": dict.fromkeys(deltas, "DELTA_BINARY_PACKED")}


def _require_empty(folder: TableFolder, system: Any, path: str) -> None:
    system.invalidate_cache()
    there: list[str] = []
    # An object store has no empty folders.
    with suppress(FileNotFoundError):
        there = system.ls(path, detail=False)
    others = [name for name in there if folder.token not in name and name.rstrip("/") != path]
    if others:
        raise OutputError(
            f"{folder.url} has {len(others):,} files already, such as {others[0].rpartition('/')[2]}; delete the "
            "folder, or choose another"
        )


@contextmanager
def _explained(folder: TableFolder, rank: int) -> Iterator[None]:
    """Turn errors of the file system into ``OutputError``."""
    try:
        yield
    except DbfsError:
        raise
    # Each file system of fsspec has errors of its own; NotImplementedError is that of one that can't write.
    except Exception as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise OutputError(f"rank {rank}: {folder.url} can't be written: {why}") from error
