"""The tables of the page that sets dbfs beside other libraries.

    python -m benchmarks.peers_page

writes them into ``docs/performance/peers.md``, between two comments, from ``benchmarks/results/peers_DATE.json``: the
peers from the newest file, and dbfs over time from all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import runner
from benchmarks.lab_page import filled, markdown_table
from benchmarks.peers import IDS, ORDERS, SAMPLE, SOURCES, PeerTime

PAGE: Final = Path(__file__).parents[1] / "docs" / "performance" / "peers.md"
SAVED = runner.RESULTS
BEGIN: Final = "<!-- tables: python -m benchmarks.peers_page -->"

_HEADINGS: Final = (
    *("build s", "with strings s", "one traversal ms", f"{SOURCES} traversals s", f"closeness of {SAMPLE} s"),
    "peak GiB",
)


def _saved() -> list[dict[str, Any]]:
    """Return the runs of ``dbfs bench peers``, the oldest first."""
    files = sorted(SAVED.glob("peers_*.json"))
    return [
        {"date": file.stem.removeprefix("peers_")}
        | runner.read(file, {"peers": {"times": PeerTime}}, ["revision", "machine"])
        for file in files
    ]


def tables() -> str:
    """Return the tables as Markdown; empty if there are no results."""
    runs = _saved()
    if not runs:
        return ""
    newest = runs[-1]
    parts = [f"Measured on {newest['date']} at `{newest['revision']}`, on {newest['machine']}."]
    for edges, rows in _by(newest["times"], "edges"):
        parts.append(f"**{edges:,} edges.** {rows[0].lone:.0%} of the generator's vertices have no edge, and no place.")
        cells = [[f"{peer} {of[0].version}", *_figures(of)] for peer, of in _by(rows, "peer")]
        parts.append(markdown_table(("peer", *_HEADINGS), cells))
    if len(runs) > 1:
        parts += ["**dbfs over time**", markdown_table(("date", "revision", "edges", *_HEADINGS), _over_time(runs))]
    return "\n\n".join(parts)


def _over_time(runs: list[dict[str, Any]]) -> Iterator[list[str]]:
    for run in runs:
        for edges, rows in _by([row for row in run["times"] if row.peer == "dbfs"], "edges"):
            yield [run["date"], f"`{run['revision']}`", f"{edges:,}", *_figures(rows)]


def _by(rows: Sequence[PeerTime], field: str) -> Iterator[tuple[Any, list[PeerTime]]]:
    """Yield each value of a field with its rows, in the order of the first ones."""
    for value in dict.fromkeys(getattr(row, field) for row in rows):
        yield value, [row for row in rows if getattr(row, field) == value]


def _figures(rows: Sequence[PeerTime]) -> list[str]:
    """Return the cells of a peer and a size; a figure that the numbering changes has a value for each order."""
    shown = runner.columns(PeerTime)

    def cell(name: str, ids: str = IDS[0], orders: Sequence[str] = ORDERS) -> str:
        found = [getattr(row, name) for order in orders for row in rows if (row.ids, row.order) == (ids, order)]
        return " / ".join("over the limit" if value is None else shown[name].cell(value) for value in found)

    builds = [cell("build", kind, ORDERS[:1]) for kind in IDS]
    return [*builds, *map(cell, ("one", "many", "closeness", "peak"))]


def page(text: str) -> str:
    """Return the page's text with tables from the saved results."""
    return filled(text, BEGIN, tables())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
