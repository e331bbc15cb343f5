"""HTML by Jinja templates, as in Dask. Names given by users are escaped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dbfs.base.records import waits_for
from dbfs.base.units import format_bytes, format_seconds
from dbfs_workers.base.text import counted, printable

if TYPE_CHECKING:
    import jinja2
    import pyarrow as pa


class Card(NamedTuple):
    """What a notebook shows of a result, without a call to the cluster.

    Attributes:
        name: what the result is of.
        facts: words about it, by their headings.
        shown: rows to show; None for none.
        chart: a drawing in SVG.
    """

    name: str
    facts: dict[str, str]
    shown: pa.Table | None = None
    chart: str = ""


def _count(value: int) -> str:
    return f"{value:,}"


def first_ids(ids: Sequence[Any]) -> str:
    """Return the first of some ids as text, and how many there are."""
    more = f", ... ({len(ids):,} in all)" if len(ids) > _MOST_IDS else ""
    return ", ".join(map(_cell, ids[:_MOST_IDS])) + more


def _cell(value: Any) -> str:
    """Return a value of a table as text: a tuple's or a struct's parts, nothing for null."""
    if isinstance(value, dict | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return f"({', '.join(map(_cell, parts))})"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return "" if value is None else printable(value, _CELL_CHARACTERS)


def _bytes_range(values: tuple[int, ...]) -> str:
    least, most = format_bytes(min(values)), format_bytes(max(values))
    if least == most:
        return least
    number, unit = least.split()
    # The unit once: a table has no space for it twice.
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


# Ids of a fact, and characters of a cell.
_MOST_IDS: Final = 5
_CELL_CHARACTERS: Final = 80


@functools.cache
def _environment(package: str) -> jinja2.Environment:
    import jinja2

    loader = jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("dbfs.graph")])
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(bytes=format_bytes, bytes_range=_bytes_range, count=_count, counted=counted)
    environment.filters.update(seconds=format_seconds, waits_for=waits_for)
    return environment


def rendered(template: str, package: str = "dbfs.graph", **values: Any) -> str:
    """Return a template of a package, filled in. It may import those of ``dbfs.graph``."""
    return _environment(package).get_template(f"{template}.html.j2").render(**values)


def card_html(kind: str, card: Card) -> str:
    """Return the card of a result of a kind as HTML."""
    rows = [] if card.shown is None else [[_cell(value) for value in row.values()] for row in card.shown.to_pylist()]
    heads = [] if card.shown is None else card.shown.column_names
    return rendered("card", kind=kind, card=card, heads=heads, rows=rows)
