"""Options, connections and printing that several commands share."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import distributed
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import dbfs
from dbfs.assembly import BuildOptions
from dbfs.base.progress import bar
from dbfs.base.records import BACKENDS
from dbfs.building.build import AUTO, ORDERS
from dbfs.edges import generate
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.corpus import CORPUS, TODLING
from dbfs.edges.generate.specs import GENERATORS
from dbfs.edges.readers import FORMATS, from_file
from dbfs.edges.resolve import edge_list
from dbfs.errors import InvalidOptionError, InvalidVertexTypeError, MissingFileError, OutputError
from dbfs_workers.base.text import printable
from dbfs_workers.ids.table import INTEGER, IdType

if TYPE_CHECKING:
    import pyarrow as pa

Command = TypeVar("Command", bound=Callable[..., Any])

GRAPH_HELP = (
    "Files: Matrix Market, METIS, edge lists (SNAP's, KONECT's and plain ones), adjacency lists, PACE and DIMACS .gr, "
    "CSV, TSV and NCOL, each also as .gz, .xz, .bz2 or .zst; Parquet, Arrow and Feather, .npy and .npz. A folder, or a "
    "quoted pattern such as "
    "'edges/part-??.parquet', is one graph, and so is the folder of a saved graph (dbfs save). - is standard input.\n\n"
    "\b\nGenerators:\n" + generate.describe()
)
"""Epilogue of the help of a command that takes a GRAPH."""

SMALL_EDGES = 2**22
"""Largest number of edges for which a command's workers are threads of its own process.

Processes start about 2 s later. Measured with two workers on 2 cores, from the start of the program to the end of a
traversal, within the process and with processes: 5.5 s and 7.4 s for 4.2 million edges of a text file, 6.9 s and 7.9 s
for 16.8 million of a Matrix Market file. The difference shrinks with the edges, and further with more cores.
"""


# Dask itself reads a scheduler's address from this variable, and its Kubernetes operator writes it there.
_SCHEDULER: dict[str, Any] = {"metavar": "ADDRESS", "envvar": "DASK_SCHEDULER_ADDRESS", "show_envvar": True}

loaded_option = click.option(
    "--loaded", is_flag=True, help="GRAPH is the name of a graph in the cluster; see dbfs load."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
cluster_option = click.option("--scheduler", required=True, help="The cluster's Dask scheduler.", **_SCHEDULER)
scheduler_option = click.option(
    "--scheduler", help="Use the workers of this Dask scheduler; a local cluster if left out.", **_SCHEDULER
)
ranks_option = click.option(
    "--ranks",
    type=click.IntRange(1),
    help="Number of workers; by default all workers of the cluster, locally on all cores.",
)


def backend_option(what: str = "CPU cores, or a GPU for each rank.") -> Callable[[Command], Command]:
    """Return the option ``--backend`` of a command; ``what`` is its help."""
    return click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True, help=what)


order_option = click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="Internal order of the vertices; by default the order of a saved graph, and given for others.",
)
load_order_options = (
    click.option(
        "--order",
        type=click.Choice((*ORDERS, AUTO)),
        help="Internal order of the vertices; by default the order of a saved graph, and given for others. With auto "
        "one that pays within --traversals.",
    ),
    click.option("--traversals", type=click.IntRange(1), help="Traversals to expect, for --order auto."),
)
in_edges_option = click.option(
    "--in-edges", is_flag=True, help="Also keep a directed graph's in-edges, for bottom-up levels."
)


def _checked_layout(_context: click.Context, _parameter: click.Parameter, layout: str) -> str:
    """Return the layout; report one that is unknown as the command line's mistake."""
    try:
        return BuildOptions(layout=layout).layout
    except InvalidOptionError as error:
        raise click.BadParameter(str(error)) from error


layout_option = click.option(
    "--layout",
    metavar=f"[1d|2d|2d:ROWSxCOLUMNS|{AUTO}]",
    default="1d",
    show_default=True,
    callback=_checked_layout,
    help="1d: a rank has the edges of its vertices. 2d: a block of a grid. auto: the faster that fits.",
)


storage_option = click.option(
    "--storage",
    type=click.Choice(BuildOptions.storage_names()),
    default="csr",
    help="pages: linked pages, on one GPU; --mutable.",
)


def reader_options(command: Command) -> Command:
    """Add the options that say how a file is read; ``edges_of`` turns their values into arguments."""
    column = "Column of a table that holds an edge's {}; repeat for ids that are tuples."
    for option in (
        click.option("--format", type=click.Choice(FORMATS), help="Format of the file; guessed if left out."),
        click.option("--sep", metavar="MARK", help="What separates columns of text; ' ' for any run of blanks."),
        click.option("--header/--no-header", default=None, help="Whether the first line of text names the columns."),
        click.option("--skip-rows", type=click.IntRange(0), metavar="N", help="Lines at the top of text to pass over."),
        click.option(
            "--missing", metavar="WORD", multiple=True, help="Word of text for a missing id, by default NA and others."
        ),
        click.option("--string-ids", is_flag=True, help="Take ids as the strings that are written."),
        click.option("--bipartite/--one-set", default=None, help="Whether sources and targets are two sets."),
        click.option("--source-column", metavar="NAME", multiple=True, help=column.format("source")),
        click.option("--target-column", metavar="NAME", multiple=True, help=column.format("target")),
    )[::-1]:
        command = option(command)
    return command


def edges_of(graph: str, options: dict[str, Any], directed: bool | None) -> EdgeList:
    """Return the edges of a file or of a generator's spec; takes the values of ``reader_options`` out of ``options``.

    ``-`` is standard input, which is copied to a file of this machine until the command ends.

    Raises:
        InvalidOptionError: options say how to read a generator's spec, or another cluster would read standard input.
    """
    told = {option: options.pop(option) for option in ("format", "sep", "header", "bipartite", "skip_rows")}
    told |= {"missing": options.pop("missing") or None, "ids": "string" if options.pop("string_ids") else None}
    told |= {end: list(options.pop(f"{end}_column")) or None for end in ("source", "target")}
    if graph == "-":
        return replace(from_file(_standard_input(), directed=directed, **told), name="standard input")
    if not generate.is_spec(graph):
        return from_file(graph, directed=directed, **told)
    given = [option for option, value in told.items() if value is not None]
    if given:
        raise InvalidOptionError(f"{graph} is a generator's spec; options such as {given[0]} say how a file is read")
    return edge_list(graph, directed=directed)


def _standard_input() -> Path:
    """Copy standard input to a file without a name, which ends with this process; errors as of ``edges_of``."""
    context = click.get_current_context()
    if context.params.get("scheduler") is not None:
        raise InvalidOptionError("- is standard input, which a cluster's workers can't read; save the edges to a file")
    copy = context.with_resource(tempfile.TemporaryFile())  # noqa: SIM115 - the context closes it
    shutil.copyfileobj(sys.stdin.buffer, copy)
    copy.flush()
    # Workers that are processes open it by this path as well.
    return Path(f"/proc/{os.getpid()}/fd/{copy.fileno()}")


def layout_options(command: Command) -> Command:
    """Add the options of a graph's layout, which have the names of ``dbfs.load``'s arguments."""
    options = (
        ranks_option,
        click.option("--directed/--undirected", default=None, help="Override the file's format or header."),
        *load_order_options,
        click.option(
            "--dense-ids",
            "ids",
            flag_value="dense",
            default="given",
            help="Name the vertices 0 to n-1, in ascending order of the file's ids, instead of by these ids.",
        ),
        in_edges_option,
        layout_option,
        backend_option(),
    )
    for option in reversed(options):
        command = option(command)
    return command


def fits_within_process(scheduler: str | None, backend: str, edges: EdgeList | None) -> bool:
    """Return whether a command's workers are threads of its own process, on CPU cores: for a small graph."""
    return scheduler is None and backend != "cuda" and edges is not None and edges.is_small(SMALL_EDGES)


def connect(
    scheduler: str | None, ranks: int | None, backend: str = "auto", *, processes: bool = True
) -> distributed.Client:
    """Connect to ``scheduler``, or start a local cluster if it is None: as processes, or within this process.

    A local cluster has no dashboard, because it ends with the command.
    """
    if scheduler is not None:
        return dbfs.connect(scheduler, n_workers=ranks, backend=backend)
    return dbfs.connect(n_workers=ranks, backend=backend, processes=processes, dashboard_address=None)


def edges_to_load(graph: str, scheduler: str | None, options: dict[str, Any]) -> EdgeList:
    """Return the edges of a file or a generator; a name that is no file may be that of a loaded graph."""
    try:
        return edges_of(graph, options, options.pop("directed"))
    except MissingFileError as error:
        if scheduler is None:
            raise
        with connect(scheduler, None) as client:
            if graph not in (status.name for status in dbfs.graphs(client=client)):
                raise
        raise MissingFileError(f"{error}; the graph of that name is loaded: add --loaded") from error


@contextmanager
def loaded_graph(
    name: str, edges: EdgeList | None, scheduler: str | None, layout: dict[str, Any]
) -> Iterator[dbfs.Graph]:
    """Connect, and load a graph for as long as the context lasts; without edges open the graph of a name.

    Raises:
        InvalidOptionError: a graph is to be opened, and there is no scheduler, or an option of the layout is given.
    """
    if edges is None:
        _check_loaded(scheduler, layout)
    if within := fits_within_process(scheduler, layout["backend"], edges):
        layout["backend"] = "cpu"
    with ExitStack() as stack:
        with bar("connecting"):
            client = stack.enter_context(connect(scheduler, layout["ranks"], layout["backend"], processes=not within))
        if edges is None:
            yield dbfs.open(name, client=client)
        else:
            yield stack.enter_context(dbfs.load(edges, client=client, **layout))


def _check_loaded(scheduler: str | None, layout: dict[str, Any]) -> None:
    if scheduler is None:
        raise InvalidOptionError("--loaded needs --scheduler, the cluster that has the graph")
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in layout and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]
    if given:
        raise InvalidOptionError(f"--loaded excludes {', '.join(given)}: the graph was laid out when it was loaded")


def parse_id(text: str, id_type: IdType, what: str) -> Any:
    """Return an id that was given as text: an int, a str, or a tuple of these from a line of comma-separated values.

    Raise ``InvalidVertexTypeError`` if the text is not of the type; ``what`` is the id's name in the message.
    """
    if not id_type.is_tuple:
        return _parse_column(text, id_type.columns[0], what)
    parts = next(csv.reader([text]), [])
    if len(parts) != len(id_type.columns):
        columns = ",".join(id_type.names)
        raise InvalidVertexTypeError(f"{what} must have {len(id_type.columns)} columns, {columns}, not {text!r}")
    return tuple(_parse_column(part, column, what) for part, column in zip(parts, id_type.columns, strict=True))


def _parse_column(text: str, column: str, what: str) -> int | str:
    if column != INTEGER:
        return text
    try:
        return int(text)
    except ValueError:
        raise InvalidVertexTypeError(f"{what} must be an integer, not {text!r}") from None


def check_out(out: Path | None, *suffixes: str) -> None:
    """Refuse a file whose name does not end in one of the suffixes, or that can't be written; errors as below."""
    if out is None:
        return
    if out.suffix not in suffixes:
        raise InvalidOptionError(f"--out {out}: the name must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    check_writable("--out", out)


def check_writable(option: str, out: Path) -> None:
    """Refuse a file that cannot be written. Called before the work, whose result a late error would lose.

    Raises:
        InvalidOptionError: the folder does not exist.
        OutputError: the file can't be opened for writing.
    """
    if not out.parent.is_dir():
        raise InvalidOptionError(f"{option} {out}: there is no folder {out.parent}")
    with writing(option, out):
        existed = out.exists()
        out.open("ab").close()
        if not existed:
            out.unlink()


@contextmanager
def writing(option: str, out: Path) -> Iterator[None]:
    """Turn an error of the system while ``out`` is written into ``OutputError``."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{option} {out}: can't be written: {error.strerror or error}") from error


def write_table(table: pa.Table, out: Path) -> int:
    """Write a table to a ``.csv`` or ``.parquet`` file; return its rows. In CSV each column of a tuple is a column."""
    if out.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table.flatten(), out)
    else:
        import pyarrow.parquet as pq

        pq.write_table(table, out)
    return int(table.num_rows)


def plain(value: object) -> Text:
    """Return the printable form of a value for rich, which reads brackets and colons in a ``str`` as its markup."""
    return Text(printable(value))


def print_json(value: Any) -> None:
    """Print a value as JSON; times in the form of ISO 8601."""
    click.echo(json.dumps(value, indent=2, default=datetime.isoformat))


def print_results(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], results: Sequence[Any], *, as_json: bool
) -> None:
    """Print a table, or its rows as JSON.

    Args:
        title: the table's.
        columns: their headings. The first column is aligned to the left, the others to the right.
        rows: the table's cells.
        results: the dataclasses behind the rows, which are printed as JSON.
        as_json: whether to print JSON.
    """
    if as_json:
        print_json([asdict(result) for result in results])
        return
    table = table_of(title, columns, right=columns[1:])
    for row in rows:
        table.add_row(*map(plain, row))
    wide_console().print(table)


def table_of(title: str, columns: Sequence[str], right: Sequence[str]) -> Table:
    """Return an empty table whose columns ``right`` are aligned to the right."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def wide_console() -> Console:
    """Return a console for tables. A file or a pipe has no width to fit, and cells would be cut to 80 columns."""
    console = Console()
    if not console.is_terminal:
        console.width = 200
    return console


def print_answer(value: Any, words: str, *, as_json: bool) -> None:
    """Print the answer of a command: a value as JSON, or the same in words."""
    if as_json:
        print_json(value)
    else:
        click.echo(words)


_CORPUS = "corpus"


class GraphType(click.ParamType[str]):
    """A file or a generator's spec. The shell completes files, names of generators, and ``corpus:NAME``."""

    name = "graph"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the specs that begin with ``incomplete``, after the order to complete files."""
        names = [f"{_CORPUS}:{name}" for name in _corpus_names()] if incomplete.startswith(f"{_CORPUS}:") else []
        specs = [f"{generator.name}:" for generator in GENERATORS] + names
        found = [CompletionItem(spec) for spec in specs if spec.startswith(incomplete) and spec != incomplete]
        # The order comes first, because bash's completion forgets the items before it.
        return [CompletionItem(incomplete, type="file"), *found]


class GraphCommand(click.Command):
    """A command with the argument ``graph``, which bash cuts at its colon."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name after ``corpus:``, which bash hands over as the words ``corpus``, ``:`` and the rest."""
        graph: Any = ctx.params.get("graph") or ctx.params.get("spec")
        after_colon = incomplete == ":" or ctx.args[-1:] == [":"]
        if graph == _CORPUS and after_colon:
            return [CompletionItem(name) for name in _corpus_names() if name.startswith(incomplete.lstrip(":"))]
        return super().shell_complete(ctx, incomplete)


def _corpus_names() -> list[str]:
    return [graph.name for graph in (*CORPUS, *TODLING)]
