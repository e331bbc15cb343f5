"""Conditions on the attributes of an edge: expressions of pyarrow and of Polars, computed row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import EdgeInputError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ArrowCondition:
    """An expression of ``pyarrow.compute``. ``computed`` raises Arrow's own errors."""

    expression: Any

    def computed(self, table: pa.Table) -> Any:
        """Return the expression's value of each row, a chunked array."""
        import pyarrow.acero as acero

        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        project = acero.Declaration("project", acero.ProjectNodeOptions([self.expression], ["passes"]))
        # On one thread, which keeps the order of the rows.
        return acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)["passes"]

    def passing(self, table: pa.Table) -> NDArray[np.uint8]:
        """See ``filters.Condition``."""
        import pyarrow as pa

        try:
            passes = self.computed(table).combine_chunks().fill_null(False)
        except pa.ArrowException as error:
            raise EdgeInputError(f"the filter {self} can't be computed of every edge: {error}") from None
        # The rows begin with a byte, but maybe not with the buffer's first one.
        return np.frombuffer(passes.buffers()[1], np.uint8, -(-len(passes) // 8), passes.offset // 8)

    def __str__(self) -> str:
        return str(self.expression)


@dataclass(frozen=True)
class PolarsCondition:
    """An expression of Polars, each row's value of which depends on that row alone. ``computed`` raises its errors."""

    expression: Any

    def computed(self, table: pa.Table) -> Any:
        """Return the expression's value of each row, a Series."""
        import polars as pl
        import pyarrow as pa

        # A few functions of Polars take strings, and no categories.
        columns = {
            name: column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            for name in dict.fromkeys(self.expression.meta.root_names())
            for column in (table[name],)
        }
        frame = pl.DataFrame(pl.from_arrow(pa.table(columns)))
        return frame.select(self.expression.alias("passes"))["passes"]

    def passing(self, table: pa.Table) -> NDArray[np.uint8]:
        """See ``filters.Condition``."""
        import polars as pl

        try:
            passes = self.computed(table).fill_null(False)
        except pl.exceptions.PolarsError as error:
            raise EdgeInputError(f"the filter {self} can't be computed of every edge: {error}") from None
        # A literal has one row.
        return np.packbits(np.broadcast_to(passes.to_numpy(), table.num_rows), bitorder="little")

    def __str__(self) -> str:
        return str(self.expression)
