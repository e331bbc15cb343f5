"""The conditions that callers give: what they are, and the check of them against the columns of a graph."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dbfs.edges.tables.ends import listed
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError
from dbfs_workers.base.text import did_you_mean
from dbfs_workers.features.views.conditions import ArrowCondition, PolarsCondition

if TYPE_CHECKING:
    import pyarrow as pa

    Condition: TypeAlias = ArrowCondition | PolarsCondition

# Parts of Polars' expressions by the names of its JSON. Polars tells of a function of SQL, or of what holds one, only
# beside a frame whether it is of one row alone.
_OF_A_ROW: Final = frozenset(["BinaryExpr", "Ternary", "Cast", "Alias"])
_FUNCTIONS_OF_A_ROW: Final = frozenset(["Sql", "Not", "IsNull", "IsNotNull"])


def is_expression(given: Any) -> bool:
    """Return whether a value is an expression of pyarrow or of Polars."""
    # Only a program that has imported the library has an expression of it.
    polars, compute = sys.modules.get("polars"), sys.modules.get("pyarrow.compute")
    kinds = [getattr(polars, "Expr", None), getattr(compute, "Expression", None)]
    return any(kind is not None and isinstance(given, kind) for kind in kinds)


def condition_on(given: Any, schema: pa.Schema, name: str, what: str) -> Condition:
    """Return the condition on edges, or on vertices, that a caller gives.

    Args:
        given: an expression of ``pyarrow.compute`` or of Polars, or a text in the manner of SQL.
        schema: the columns of the graph.
        name: the graph's name.
        what: ``edges`` or ``vertices``.

    Raises:
        InvalidOptionTypeError: it is no expression.
        InvalidOptionError: a column is not there, types do not compare, the expression is no boolean, or it takes other
            rows than an edge's own; or a text needs Polars, which is not installed.
    """
    if not schema.names:
        option = "edge_columns=" if what == "edges" else "vertex_columns="
        raise InvalidOptionError(f"{name} has no columns of {what}; load it with {option}")
    if isinstance(given, str):
        return _of_polars(_sql(given), schema, name)
    if not is_expression(given):
        raise InvalidOptionTypeError(
            f"{what} must be an expression such as pyarrow.compute.field('kind') == 'road', not {type(given).__name__}"
        )
    if type(given).__module__.startswith("polars"):
        return _of_polars(given, schema, name)
    import pyarrow as pa

    condition, columns = ArrowCondition(given), schema.names
    if "FieldPath(" in str(given):
        raise InvalidOptionError(f"{name}: name the columns, not their places. Its columns: {listed(columns)}")
    try:
        kind = condition.computed(schema.empty_table()).type
    except pa.ArrowException as error:
        _, missing, rest = str(error).partition("FieldRef.Name(")
        raise _refusal(given, rest.partition(") in ")[0] if missing else None, columns, name, error) from None
    if not pa.types.is_boolean(kind):
        raise _no_boolean(given, kind, name)
    return condition


def _of_polars(given: Any, schema: pa.Schema, name: str) -> PolarsCondition:
    import polars as pl

    condition, columns = PolarsCondition(given), schema.names
    try:
        missing = next((root for root in given.meta.root_names() if root not in columns), None)
        if missing is not None:
            raise _refusal(given, missing, columns, name)
        if not _is_of_a_row(given, schema):
            raise InvalidOptionError(
                f"{name}: the filter {given} takes other rows than an edge's own, which lie on several ranks"
            )
        computed = condition.computed(schema.empty_table())
    except pl.exceptions.PolarsError as error:
        raise _refusal(given, None, columns, name, error) from None
    if computed.dtype != pl.Boolean:
        raise _no_boolean(given, computed.dtype, name)
    return condition


def columns_in(text: str) -> list[str]:
    """Return the columns that a text in the manner of SQL names. Errors as for ``condition_on``."""
    return list(dict.fromkeys(_sql(text).meta.root_names()))


def _sql(text: str) -> Any:
    try:
        import polars as pl
    except ImportError as error:
        raise InvalidOptionError(
            "a filter as a text needs Polars: pip install polars; or pass an expression of pyarrow.compute"
        ) from error
    try:
        return pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        raise InvalidOptionError(f"the filter {text!r} is no expression of SQL: {error}") from None


def _is_of_a_row(given: Any, schema: pa.Schema) -> bool:
    """Return whether an expression of Polars has a value for each row that depends on that row alone."""
    import polars as pl

    meta = given.meta
    if meta.is_literal() or meta.is_column():
        return True
    parts = meta.pop()
    try:
        whole = meta.is_length_preserving() and not meta.is_scalar()
        # What has no column has the same value for any row.
        own = meta.is_row_separable() and (whole or (bool(parts) and not meta.root_names()))
    except pl.exceptions.ColumnNotFoundError:
        outer, body = next(iter(json.loads(meta.serialize(format="json")).items()))
        own = outer in _OF_A_ROW or (outer == "Function" and _function_name(body["function"]) in _FUNCTIONS_OF_A_ROW)
    return own and all(_is_of_a_row(part, schema) for part in parts)


def _function_name(function: Any) -> str:
    """Return the name of a function in Polars' JSON, such as ``{"Boolean": "Not"}`` or ``{"Sql": {...}}``."""
    if not isinstance(function, dict):
        return str(function)
    kind, inner = next(iter(function.items()))
    return str(inner) if kind == "Boolean" else str(kind)


def _refusal(
    given: Any, missing: str | None, columns: Sequence[str], name: str, error: Exception | None = None
) -> InvalidOptionError:
    if missing is not None:
        hint = did_you_mean(missing, columns)
        return InvalidOptionError(f"{name} has no column {missing!r}{hint} Its columns: {listed(columns)}")
    reason = " ".join(str(error).split("\n\n")[0].split())
    return InvalidOptionError(f"{name}: the filter {given} can't be computed: {reason}. Its columns: {listed(columns)}")


def _no_boolean(given: Any, kind: Any, name: str) -> InvalidOptionError:
    return InvalidOptionError(f"{name}: the filter {given} is no condition: its values are {kind}, not booleans")
