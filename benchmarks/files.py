"""The rates of files: a graph saved and opened again, labels written, Matrix Market read beside fast_matrix_market."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import distributed
import numpy as np
from numpy.typing import NDArray

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns, seconds_of
from dbfs.base.units import format_bytes
from dbfs.cli.common import GraphType
from dbfs.edges import generate
from dbfs.edges.readers import from_file
from dbfs.edges.writers import write_edges
from dbfs.errors import ValidationError
from dbfs_workers.base.text import counted

Ends = tuple[NDArray[Any], NDArray[Any]]
"""Sources and targets of edges."""

# Bytes of a row of labels in memory: vertex and predecessor, int64, and the distance, int32.
_ROW_BYTES = 20
# Edges of a piece of text that is read at a time, as of a build.
_PIECE_EDGES = 1 << 18


@dataclass(frozen=True)
class FileRate:
    """The rate of one way to read or write.

    Attributes:
        what: the work, such as ``graph saved``.
        nbytes: bytes of the files; of labels the bytes in memory, which their files compress.
        seconds: seconds by the client's clock, the least of several times.
        rate: bytes per second.
    """

    what: Annotated[str, Column()]
    nbytes: Annotated[int, Column("size", format_bytes)]
    seconds: Annotated[float, Column("", ".2f")]
    rate: Annotated[float, Column("MB/s", ",.0f", times=1e-6)]

    @classmethod
    def of(cls, what: str, nbytes: int, seconds: Sequence[float]) -> FileRate:
        """Return the rate of the fastest of several times."""
        return cls(what, nbytes, min(seconds), nbytes / min(seconds))


@click.command()
@options.value("--graph", "kronecker:scale=20", "Generator of the graph that is saved.", GraphType())
@options.value("--text", "kronecker:scale=18", "Generator of the graph of the Matrix Market file.", GraphType())
@options.ranks(2)
@options.backend
@options.count("--times", 3, "Repeats; the fastest counts.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for the files, which are removed at the end; by default the folder of temporary files.",
)
@options.memory
@options.json
def files(ranks: int, backend: str, memory_limit: str, file: str | None, folder: Path | None, **given: Any) -> None:
    """Measure how fast graphs and labels are written and read.

    A graph is saved and opened again, the labels of a traversal are written as Parquet, and one thread reads a Matrix
    Market file, next to fast_matrix_market if that is installed. The files were just written, so the system reads them
    from memory.

    Example: dbfs bench files --graph kronecker:scale=22 --ranks 2
    """
    with (
        Results("files", file) as results,
        tempfile.TemporaryDirectory(prefix="dbfs-bench-", dir=folder) as own,
        connect(ranks, backend, memory_limit) as client,
    ):
        graph, text = given["graph"], given["text"]
        rates = bench_files(client, graph, text, Path(own), backend, given["times"])
        results.take("rates", rates, f"{graph} and {text}, {counted(ranks, 'rank')} on {backend}")


def bench_files(
    client: distributed.Client, graph: str, text: str, folder: Path, backend: str, times: int
) -> Iterator[FileRate]:
    """Time the reads and writes of a graph's files, in an empty folder.

    Raises:
        ValidationError: the opened graph, or the edges read, differ from those that were written.
    """
    where: dict[str, Any] = {"client": client, "backend": backend, "progress": False}
    saved, labels = folder / "graph.dbfs", folder / "labels"
    with dbfs.load(graph, **where) as loaded:
        source = loaded.sample_sources(1)[0]
        result = loaded.bfs(source, predecessors=True)

        def write() -> None:
            shutil.rmtree(labels, ignore_errors=True)
            result.to_parquet(labels)

        written = [seconds_of(write)[0] for _ in range(times)]
        yield FileRate.of("labels written as Parquet", result.reached * _ROW_BYTES, written)
        shutil.rmtree(labels)
        saves = [seconds_of(loaded.save, saved, replace=True) for _ in range(times)]
        size = saves[0][1]
        yield FileRate.of("graph saved", size, [seconds for seconds, _ in saves])
        expected = _levels(result)
    taken = []
    for _ in range(times):
        seconds, opened = seconds_of(dbfs.load, saved, **where)
        with opened:
            taken.append(seconds)
            if _levels(opened.bfs(source)) != expected:
                raise ValidationError(f"{graph}: the graph opened has other levels than the graph saved")
    shutil.rmtree(saved)
    yield FileRate.of("saved graph opened", size, taken)
    path = folder / "graph.mtx"
    write_edges(generate.parse(text), path)
    yield from _matrix_market(path, times)
    path.unlink()


def _matrix_market(path: Path, times: int) -> Iterator[FileRate]:
    """Time one thread that reads a Matrix Market file, and fast_matrix_market if that is installed, in turns."""
    ways: dict[str, Callable[[], list[Ends]]] = {"Matrix Market read": lambda: _read(path)}
    with suppress(ModuleNotFoundError):
        other = importlib.import_module("fast_matrix_market")
        # The library returns ((values, ends), shape).
        ways["Matrix Market read by fast_matrix_market"] = lambda: [
            other.read_coo(path, parallelism=1, generalize_symmetry=False)[0][1]
        ]
    seconds, read = in_turns(ways, times)
    found = [[np.concatenate(ends) for ends in zip(*parts, strict=True)] for parts in read.values()]
    if any(not np.array_equal(each, found[0]) for each in found):
        raise ValidationError(f"{path}: fast_matrix_market reads other edges")
    for what, each in seconds.items():
        yield FileRate.of(what, path.stat().st_size, each)


def _read(path: Path) -> list[Ends]:
    """Return the edges of a file, piece by piece as a rank reads it."""
    pieces: list[Any] = [piece.read() for piece in from_file(path).cut(_PIECE_EDGES)]
    return pieces


def _levels(result: dbfs.BFSResult) -> list[int]:
    return [report.discovered for report in result.reports]
