"""What all figures share: their size, colours and files. Needs matplotlib."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dbfs.cli.common import writing
from dbfs.errors import InvalidOptionError, MissingPackageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = "osD^vP"

Lines = dict[str, list[tuple[int, float]]]
"""Points by the name of their line."""


def figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes are in inches."""
    # Not a figure of pyplot, which would keep every figure in memory to show it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def charts(label: str, *shown: tuple[str, str, str, Lines]) -> Figure:
    """Return charts with logarithmic axes beside each other.

    Args:
        label: says what the picture shows.
        shown: by chart, its title, the titles of its axes, and its lines by name: dashed if the name ends with model.
    """
    drawn = figure(4.6 * len(shown), 4.0)
    drawn.set_label(label)
    for ax, (title, across, up, lines) in zip(drawn.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for index, (name, line) in enumerate(lines.items()):
            style = ("--" if name.endswith("model") else "-") + MARKERS[index % len(MARKERS)]
            ax.plot(*zip(*line, strict=True), style, color=COLOURS[index % len(COLOURS)], label=name)
        ranks, heights = (sorted({point[axis] for line in lines.values() for point in line}) for axis in (0, 1))
        ax.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
        ax.set_ylim(10 ** np.floor(np.log10(heights[0])), 10 ** np.ceil(np.log10(heights[-1])))
        ax.set_xticks(ranks, [f"{rank:,}" for rank in ranks])
        ax.minorticks_off()
        ax.set_title(title, fontsize="medium", loc="left")
        ax.grid(axis="y", alpha=0.3)
        ax.legend(frameon=False, fontsize="small")
    return drawn


def folder(out: Path) -> Path:
    """Make the folder for figures.

    Raises:
        MissingPackageError: matplotlib is not installed.
        InvalidOptionError: the folder can't be made.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(
            "figures need matplotlib, which is not installed; run pip install '.[plots]' in a clone of dbfs, "
            "or --json here, and dbfs bench figures on a machine that has it"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(f"--out {out}: {error.strerror}") from error
    return out


def save(drawn: Mapping[str, Figure], folder: Path, form: str) -> list[Path]:
    """Save figures into a folder as ``png`` or ``svg``; return their paths. The same figure has the same bytes.

    Raises:
        OutputError: a figure can't be written.
    """
    paths = [folder / f"{name}.{form}" for name in drawn]
    for path, one in zip(paths, drawn.values(), strict=True):
        with writing("--out", path):
            path.write_bytes(_svg(one) if form == "svg" else _png(one))
    return paths


def _png(drawn: Figure) -> bytes:
    made = io.BytesIO()
    drawn.savefig(made, format="png", dpi=120)
    return made.getvalue()


def _svg(drawn: Figure) -> bytes:
    """Return an SVG whose text is text, without references to the network."""
    import matplotlib as mpl

    made = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dbfs"}):
        drawn.savefig(made, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = " ".join(made.getvalue().partition("<svg")[2].split()).replace("> <g id=", ">\n<g id=")
    text = text.replace('xmlns:xlink="http://www.w3.org/1999/xlink" ', "").replace("xlink:href", "href")
    return f"<svg {text}\n".replace(">", f">\n<title>{escape(str(drawn.get_label()))}</title>", 1).encode()
