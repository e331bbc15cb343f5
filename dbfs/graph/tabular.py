"""Tabular: the base of results that are a table in the caller's ids, for other libraries, files and notebooks."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from numpy.typing import NDArray

from dbfs.base.calls import public
from dbfs.edges.tables.about import About
from dbfs.errors import InvalidOptionError, MissingPackageError
from dbfs.graph.html import Card, card_html
from dbfs_workers.base.folder import Folder
from dbfs_workers.ids.label_table import data_frame

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

logger = logging.getLogger(__name__)

COMPRESSIONS: Final = ("snappy", "zstd", "lz4", "gzip", "brotli", "none")
"""What ``to_parquet`` takes as ``compression``."""

SHOWN: Final = slice(5)
"""Rows of a table that a notebook shows."""


@public
class Tabular(ABC):
    """Base of results that are a table. The ids in its columns are the caller's, and null stands where there is none.

    Libraries that take Arrow's stream take a result as it is: ``polars.DataFrame(result)``, ``duckdb``, ``pyarrow``.
    """

    # Whether the rows are edges. ``dbfs.load`` takes any other table that offers Arrow's stream.
    _holds_edges: ClassVar[bool] = False

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the result as an Arrow table. Ids of several columns are structs."""

    @abstractmethod
    def _card(self) -> Card:
        """Return what a notebook shows."""

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame with the rows and columns of ``to_arrow``.

        Columns of integers with nulls have pandas' types ``Int32`` and ``Int64``. Ids of several columns are tuples.
        Errors as for ``to_arrow``.
        """
        return data_frame(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return a Polars DataFrame with the rows and columns of ``to_arrow``. Ids of several columns are structs.

        Raises:
            MissingPackageError: Polars is not installed. Other errors as for ``to_arrow``.
        """
        return polars_frame(self.to_arrow())

    def to_parquet(self, path: str | os.PathLike[str], *, compression: str = "snappy") -> None:
        """Write the table of ``to_arrow`` as one Parquet file, which appears when it is complete.

        Args:
            path: the file, which is replaced if it is there, or a URL that fsspec writes (``s3://...``).
            compression: ``snappy``, ``zstd``, ``lz4``, ``gzip``, ``brotli`` or ``none``.

        Raises:
            OutputError: the file can't be written.
            InvalidOptionError: the compression is unknown, or there is no folder for the file.
            Other errors as for ``to_arrow``.
        """
        # Loads pyarrow.
        import pyarrow.parquet as pq

        from dbfs.edges.writers.target import Target

        require_compression(compression)
        parent, _, name = os.fspath(path).rpartition("/")
        remote = "://" in parent
        target = None if remote else Target.at(Path(path))
        table = self.to_arrow()
        if target is None:
            with Folder.at(parent).create(name) as stream:
                pq.write_table(table, stream, compression=compression)
        else:
            with target.opened("") as sink:
                pq.write_table(table, sink.stream, compression=compression)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table of ``to_arrow`` as a stream. Source: Apache Arrow, "The Arrow PyCapsule Interface"."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        return card_html(f"dbfs.{type(self).__name__}", self._card())


class Pair(Tabular):
    """Base of results that are two arrays, and a table of them: ``first, second = result``."""

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        self._arrays = first, second

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index: Any) -> Any:
        return self._arrays[index]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(self._arrays)

    def __repr__(self) -> str:
        return f"<dbfs.{type(self).__name__}: {self._arrays!r}>"


def polars_frame(table: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as a Polars DataFrame; errors as of ``Tabular.to_polars``."""
    try:
        import polars
    except ImportError as error:
        raise MissingPackageError("to_polars needs Polars: pip install polars") from error
    about = About.of_metadata(table.schema.metadata, "the table")
    if about is not None and about.told:
        logger.warning(
            "a Polars DataFrame leaves out %s, so that dbfs.load would not know; to_arrow and to_pandas keep them",
            about.told,
        )
    return polars.DataFrame(table)


def require_compression(compression: str) -> None:
    """Raise ``InvalidOptionError`` unless Parquet has a compression."""
    if compression not in COMPRESSIONS:
        raise InvalidOptionError(f"unknown compression {compression!r}; choose one of {', '.join(COMPRESSIONS)}")
