"""What all benchmarks share: rows with named columns, their tables and JSON, and times in turns.

A row is a frozen dataclass. A field ``Annotated[float, Column("ms", ".2f")]`` is a column of the table; the JSON has
all fields.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Self, TypeVar, get_type_hints

import click
import dask.system
import distributed
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dbfs
from dbfs.base import progress
from dbfs.cli.common import check_writable, plain, writing
from dbfs.display.tables import tight_table
from dbfs.errors import FormatError, InvalidOptionError, MissingFileError
from dbfs_workers.base.gpus import own_gpu_name

Row = TypeVar("Row")
Found = TypeVar("Found")
Name = TypeVar("Name")

RESULTS: Final = Path(__file__).with_name("results")
"""The saved results of which pages are made."""

_ROOT: Final = Path(__file__).parents[1]
# What a figure depends on.
_MEASURED: Final = ("dbfs", "workers", "benchmarks", "configs/bench", "pyproject.toml")


@dataclass(frozen=True)
class Column:
    """How a table shows a field of its rows.

    Attributes:
        heading: the heading; the field's name if empty.
        form: a format, or a function of the value. None has an empty cell.
        about: what the heading can't say; printed below the table.
        times: factor from the field's unit to the column's.
    """

    heading: str = ""
    form: str | Callable[[Any], str] = ""
    about: str = ""
    times: float | None = None

    def cell(self, value: Any) -> str:
        """Return the text of a value."""
        if value is None:
            return ""
        if self.times is not None:
            value *= self.times
        return self.form(value) if callable(self.form) else format(value, self.form)


def columns(row: type) -> dict[str, Column]:
    """Return the columns of a row's type by field."""
    hints = get_type_hints(row, include_extras=True)
    marks = ((name, mark) for name, hint in hints.items() for mark in getattr(hint, "__metadata__", ()))
    return {name: mark for name, mark in marks if isinstance(mark, Column)}


def table(title: str, rows: Sequence[Any], fields: Sequence[str] = ()) -> Table:
    """Return a table of rows of one type, with the columns of ``fields``, or with all."""
    known = columns(type(rows[0]))
    shown = {name: known[name] for name in fields or known}
    made = tight_table(escape(title))
    for name, column in shown.items():
        words = isinstance(getattr(rows[0], name), str)
        made.add_column(column.heading or name, justify="left" if words else "right", overflow="fold")
    for row in rows:
        made.add_row(*(plain(column.cell(getattr(row, name))) for name, column in shown.items()))
    abouts = [f"{column.heading or name}: {column.about}." for name, column in shown.items() if column.about]
    made.caption, made.caption_justify = " ".join(abouts).replace("\n", " ") or None, "left"
    return made


class Results:
    """The results of one run of a benchmark: rows by name, and facts that hold for all of them.

    Rows are saved to a file as they are measured; the fact ``complete`` is false there until the block ends without an
    error. At the end of the block the tables are printed, also after an error, since the rows before it took time.

    Args:
        benchmark: the command's name.
        files: where the JSON goes: files, and ``-`` for stdout in place of the tables; None is nowhere.
        facts: what holds for all rows.

    Raises:
        InvalidOptionError, OutputError: a file can't be written.
    """

    def __init__(self, benchmark: str, *files: str | Path | None, **facts: Any) -> None:
        self.revision = revision()
        self.facts: dict[str, Any] = {"benchmark": benchmark, "revision": self.revision, "complete": False, **facts}
        self._files = [Path(file) for file in files if file is not None and file != "-"]
        self._on_stdout = "-" in files
        self._rows: dict[str, list[Any]] = {}
        self._tables: list[tuple[list[Any], Any]] = []
        for file in self._files:
            check_writable("--json", file)

    def take(self, name: str, rows: Iterable[Row], tables: str | Callable[[list[Row]], Iterable[Table]]) -> list[Row]:
        """Take rows as they are measured; ``tables`` is the title of their table, or makes their tables."""
        taken: list[Row] = []
        self._rows[name] = taken
        self._tables.append((taken, tables))
        for row in rows:
            taken.append(row)
            self._save()
        return taken

    def of_cut_run(self, name: str, kind: type[Row]) -> list[Row]:
        """Return the rows that a run with the same facts saved before it was cut; none if there is no such run."""
        for file in self._files:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                saved = json.loads(file.read_text(encoding="utf-8"))
                if {fact: saved[fact] for fact in self.facts} == self.facts:
                    return [_row(kind, one) for one in saved[name]]
        return []

    def _save(self) -> None:
        for file in self._files:
            with writing("--json", file):
                file.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """Return the JSON, with a line for each row."""
        parts = [json.dumps(self.facts)[1:-1]]
        for name, rows in self._rows.items():
            lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
            parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
        return f"{{{', '.join(parts)}}}\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.facts["complete"] = True
            self._save()
        if self._on_stdout:
            if kind is None:
                click.echo(self.text(), nl=False)
            return
        console = Console()
        if not console.is_terminal:
            # A file or a pipe has no width to fit, and cells would be cut to 80 columns.
            console.width = 200
        for rows, tables in self._tables:
            if rows:
                for one in [table(tables, rows)] if isinstance(tables, str) else tables(rows):
                    console.print(one, "")


def read(path: Path, rows: Mapping[str, Mapping[str, type]], facts: Sequence[str] = ()) -> dict[str, Any]:
    """Read the JSON of a benchmark; a line on stderr says if the benchmark ended early.

    Args:
        path: the file.
        rows: by benchmark that may have saved the file, the types of its rows by name.
        facts: names of facts that the file must have.

    Returns:
        The facts and the rows by name.

    Raises:
        MissingFileError: there is no such file.
        FormatError: the file is not the JSON of one of these benchmarks.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["benchmark"] not in rows:
            raise ValueError(f"it is of dbfs bench {saved['benchmark']}")
        found = {name: saved[name] for name in ("benchmark", *facts)}
        made = {name: [_row(kind, one) for one in saved[name]] for name, kind in rows[saved["benchmark"]].items()}
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        names = " or ".join(rows)
        raise FormatError(
            f"{path}: not the JSON that dbfs bench {names} saves ({type(error).__name__}: {error})"
        ) from error
    # Files of earlier versions don't say.
    if saved.get("complete", True) is not True:
        click.echo(f"{path}: the benchmark ended early; these are the rows that it measured until then", err=True)
    return found | made


def _row(kind: type, saved: Mapping[str, Any]) -> Any:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()})


def revision() -> str:
    """Return the git revision of the running code, or ``unknown`` outside a git checkout.

    ``-dirty`` stands behind it if code or plans differ from it. Results and pages may.
    """
    described = _git("describe", "--always")
    changed = described and _git("status", "--porcelain", "--", *_MEASURED, f":(exclude){RESULTS.relative_to(_ROOT)}")
    return f"{described}{'-dirty' if changed else ''}" or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def seconds_of(call: Callable[..., Found], *arguments: Any, **options: Any) -> tuple[float, Found]:
    """Return the seconds of a call by this process's clock, and the answer."""
    start = time.perf_counter()
    found = call(*arguments, **options)
    return time.perf_counter() - start, found


def in_turns(
    calls: Mapping[Name, Callable[[], Found]],
    rounds: int,
    warm_up: int = 0,
    figure: Callable[[float, Found], float] = lambda seconds, _: seconds,
) -> tuple[dict[Name, list[float]], dict[Name, Found]]:
    """Make calls in turns, so that other programs on the machine slow all of them alike.

    Args:
        calls: the calls by name.
        rounds: number of turns that count, after ``warm_up`` turns that don't.
        figure: what is kept of a call, given its seconds and its answer.

    Returns:
        By name, the figures of all rounds; and the last answer.
    """
    figures: dict[Name, list[float]] = {name: [] for name in calls}
    answers: dict[Name, Found] = {}
    for turn, (name, call) in itertools.product(range(warm_up + rounds), calls.items()):
        # Two answers of a call may not fit, and their release is no part of a call.
        answers.pop(name, None)
        seconds, answers[name] = seconds_of(call)
        if turn >= warm_up:
            figures[name].append(figure(seconds, answers[name]))
    return figures, answers


def milliseconds(seconds: Sequence[float], of: int = 1) -> float:
    """Return the median as milliseconds, for each of ``of`` parts."""
    return median(seconds) * 1e3 / of


def connect(
    ranks: int,
    backend: str = "auto",
    memory_limit: str = "auto",
    scheduler: str | None = None,
    *,
    processes: bool = True,
) -> distributed.Client:
    """Connect to ``scheduler``, or to a local cluster of ``ranks`` workers if it is None.

    A local cluster has no dashboard, because it ends with the command. Workers on GPUs are processes always.
    """
    if scheduler is not None:
        return dbfs.connect(scheduler, n_workers=ranks, backend=backend)
    processes = processes or backend == "cuda"
    options: dict[str, Any] = {"memory_limit": 0 if memory_limit == "0" else memory_limit} if processes else {}
    return dbfs.connect(n_workers=ranks, backend=backend, processes=processes, dashboard_address=None, **options)


def machine(client: distributed.Client, backend: str) -> str:
    """Return the name of a worker's GPU, or the architecture of its processor with the number of cores."""
    return str(client.submit(_machine, backend, pure=False).result())


def _machine(backend: str) -> str:
    gpu = None if backend == "cpu" else own_gpu_name()
    return gpu or f"{platform.machine()}, {dask.system.cpu_count()} cores"


Started = Callable[[str], None]
"""Called with the name of a measurement before it begins."""


def begun(bar: progress.Bar) -> Started:
    """Return a callback for the start of a measurement: it names it on the bar, and counts the earlier ones as done."""
    done = itertools.count()
    return lambda what: bar.set(next(done), what)


def chosen(named: Iterable[Any], parts: Sequence[str]) -> list[Any]:
    """Return those whose ``graph`` contains one of ``parts``; all if there are no parts.

    Raises:
        InvalidOptionError: no name contains any of them.
    """
    everything = list(named)
    found = [one for one in everything if not parts or any(part in one.graph for part in parts)]
    if not found:
        names = ", ".join(dict.fromkeys(one.graph for one in everything))
        raise InvalidOptionError(f"--graph {', '.join(parts)}: no graph's name contains this; the graphs are {names}")
    return found
