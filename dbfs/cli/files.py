"""``dbfs generate`` and ``dbfs convert``: graphs as files."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbfs.base.progress import bar
from dbfs.base.units import format_bytes
from dbfs.cli.common import GraphCommand, GraphType, edges_of, json_option, print_answer, reader_options
from dbfs.edges import generate as generators
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.text import counted, printable

if TYPE_CHECKING:
    # The import loads SciPy and pyarrow, which is slow.
    from dbfs.edges.writers import WriteReport

_CORPUS = "corpus"
_KEEP_LONE = ".parquet keeps them"
_FORMATS_HELP = (
    "\b\nThe file's name determines its format:\n"
    ".mtx      Matrix Market, a pattern\n"
    ".graph    METIS\n"
    ".txt      edge list with tabs; also .tsv, .el, .edges, .edgelist and .snap\n"
    ".csv      edge list with commas\n"
    ".gr       PACE (undirected) or DIMACS (directed)\n"
    ".npz      SciPy sparse matrix\n"
    ".parquet  table with the columns src and dst\n\n"
    "A text file whose name ends in .gz, .xz or .bz2 is compressed."
)


@click.command(cls=GraphCommand, epilog=f"{_FORMATS_HELP}\n\n\b\nGenerators:\n{generators.describe()}")
@click.argument("spec", type=GraphType())
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option("--scale-down", type=int, help="For a corpus graph: keep about 1/INTEGER of its vertices.")
@json_option
def generate(spec: str, out: Path, scale_down: int | None, as_json: bool) -> None:
    """Write the graph of a generator's SPEC to a file.

    \b
    Examples:
      dbfs generate kronecker:scale=16 -o kronecker.mtx.gz
      dbfs generate corpus:europe.osm --scale-down 64 -o europe.txt
    """
    if scale_down is not None:
        name, _, rest = spec.partition(":")
        if name != _CORPUS:
            raise InvalidOptionError(f"--scale-down is for {_CORPUS}:NAME, not for {spec}")
        spec = f"{name}:{rest}{',' * bool(rest)}scale_down={scale_down}"
    _write(generators.parse(spec), out, as_json)


@click.command(epilog=_FORMATS_HELP)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--directed/--undirected", default=None, help="Override IN's format or header.")
@reader_options
@json_option
def convert(source: str, out: Path, directed: bool | None, as_json: bool, **reading: Any) -> None:
    """Convert the graph in file IN to the format of file OUT. IN may be a folder, a quoted pattern or a saved graph.

    The options say how IN is read. The name of OUT determines its format. OUT has the ids of IN if its format holds
    them: .parquet any, .csv and .tsv strings and integers, the other edge lists integers. In all other formats
    consecutive numbers stand for the ids. Weights are left out. The command prints what was left out.

    \b
    Examples:
      dbfs convert road.gr.xz road.mtx.gz
      dbfs convert follows.csv follows.parquet --source-column who --target-column whom
    """
    _write(edges_of(source, reading, directed), out, as_json)


def _write(edges: EdgeList, out: Path, as_json: bool) -> None:
    # Imported here, because the other commands need no SciPy and pyarrow.
    from dbfs.edges.writers import write_edges

    start = time.perf_counter()
    with bar(f"writing {out}", edges.m) as shown:
        written = write_edges(edges, out, progress=lambda read: shown.set(read, f"{counted(read, 'edge')} read"))
    seconds = time.perf_counter() - start
    found = {"file": str(out), **asdict(written), "bytes": out.stat().st_size, "seconds": seconds}
    print_answer(found, _report(out, written, seconds), as_json=as_json)


def _report(out: Path, written: WriteReport, seconds: float) -> str:
    vertices = "" if written.n is None else f"{counted(written.n, 'vertex', 'vertices')}, "
    kind = "directed" if written.directed else "undirected"
    size = format_bytes(out.stat().st_size)
    lines = [f"{printable(out)}: {vertices}{counted(written.m, f'{kind} edge')}, {size} in {seconds:.1f} s"]
    held = {"self-loops and duplicates": ".mtx, .gr and .parquet keep them", "vertices without edges": _KEEP_LONE}
    left_out = {"self-loops and duplicates": written.left_out, "vertices without edges": written.lone, **written.values}
    lines += [
        f"left out: {count:,} x {printable(what)}" + (f"; {held[what]}" if what in held else "")
        for what, count in left_out.items()
        if count
    ]
    if written.numbered is not None:
        words = f"ids: numbers from {written.numbered} on stand for the vertices' ids, in ascending order"
        lines.append(f"{words}; .parquet keeps ids")
    return "\n".join(lines)
