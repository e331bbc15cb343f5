"""The rates of files: a graph saved and opened again, labels written, Matrix Market read beside fast_matrix_market."""

from __future__ import annotations

import importlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
from numpy.typing import NDArray

import dbfs
from dbfs.edges import generate
from dbfs.edges.readers import from_file
from dbfs.edges.writers import write_edges
from dbfs.errors import ValidationError

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
    """

    what: str
    nbytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds


def bench_files(
    client: distributed.Client, graph: str, text: str, folder: Path, backend: str, times: int
) -> Iterator[FileRate]:
    """Time the reads and writes of a graph's files. The files are in the system's cache when they are read.

    Args:
        client: the cluster to use.
        graph: spec of the generator of the graph that is saved.
        text: spec of the generator of the graph that is written as Matrix Market.
        folder: an empty folder for the files.
        backend: ``cpu`` or ``cuda``.
        times: number of times, of which the fastest counts.

    Raises:
        ValidationError: the opened graph, or the edges read, differ from those that were written.
    """
    options: dict[str, Any] = {"client": client, "backend": backend, "progress": False}
    saved, labels = folder / "graph.dbfs", folder / "labels"
    with dbfs.load(graph, **options) as loaded:
        source = loaded.sample_sources(1)[0]
        result = loaded.bfs(source, predecessors=True)

        def write() -> None:
            shutil.rmtree(labels, ignore_errors=True)
            result.to_parquet(labels)

        yield FileRate("labels written as Parquet", result.reached * _ROW_BYTES, _least(write, times)[0])
        shutil.rmtree(labels)
        seconds, size = _least(lambda: loaded.save(saved, replace=True), times)
        yield FileRate("graph saved", size, seconds)
        expected = _levels(result)
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        with dbfs.load(saved, **options) as opened:
            taken.append(time.perf_counter() - start)
            if _levels(opened.bfs(source)) != expected:
                raise ValidationError(f"{graph}: the graph opened has other levels than the graph saved")
    shutil.rmtree(saved)
    yield FileRate("saved graph opened", size, min(taken))
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
    seconds: dict[str, list[float]] = {what: [] for what in ways}
    for _ in range(times):
        found = []
        # In turns, so that other work on the machine disturbs both alike.
        for what, read in ways.items():
            start = time.perf_counter()
            parts = read()
            seconds[what].append(time.perf_counter() - start)
            found.append([np.concatenate(ends) for ends in zip(*parts, strict=True)])
        if any(not np.array_equal(each, found[0]) for each in found):
            raise ValidationError(f"{path}: fast_matrix_market reads other edges")
    for what, each in seconds.items():
        yield FileRate(what, path.stat().st_size, min(each))


def _read(path: Path) -> list[Ends]:
    """Return the edges of a file, piece by piece as a rank reads it."""
    pieces: list[Any] = [piece.read() for piece in from_file(path).cut(_PIECE_EDGES)]
    return pieces


def _least(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the least seconds of several calls, and the answer of the last call."""
    taken, found = [], None
    for _ in range(times):
        start = time.perf_counter()
        found = work()
        taken.append(time.perf_counter() - start)
    return min(taken), found


def _levels(result: dbfs.BFSResult) -> list[int]:
    return [report.discovered for report in result.reports]
