"""Checkpoint: the finished runs of a long measure, in a file.

The file is NumPy's ``.npz``: ``told``, a JSON text that says of what graph and what measure it is; ``finished``, the
number of sources; ``state``, what the measure keeps of these. A new file replaces the one before only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Ref
from dbfs.errors import FormatError, InvalidOptionError, UnreadableFileError, WorkerLostError
from dbfs.graph.striped import StripedGraph
from dbfs_workers.serving import queries

Array = NDArray[Any]

# After a save, the measure goes on for this many times as long before the next one.
_PAUSE: Final = 20


def folded(
    graph: StripedGraph,
    measure: str,
    made_of: tuple[Array, ...],
    begin: Array,
    parts: Callable[[int, Array], Iterator[tuple[int, Array]]],
    add: Callable[[Array, Array], Array],
    path: str | os.PathLike[str] | None,
) -> Array:
    """Add up what a measure keeps of its sources, some sources after others; after a loss of a worker it goes on.

    Args:
        measure: what is measured, and how it is added up.
        made_of: arrays of vertices that the measure is made of.
        begin: what the measure keeps before the first source.
        parts: yields the parts from a number of finished sources on, of which the array is kept: how many sources, and
            what is kept of them.
        add: returns what is kept of two stretches of sources. With a checkpoint the first stays as it was, since a part
            that is not taken is not kept.
        path: the checkpoint; None for none.

    Raises:
        InvalidOptionError: the file is the checkpoint of another graph or measure, or another client updated the graph.
        FormatError: the file is no checkpoint.
        UnreadableFileError, OutputError: the file can't be read, or written.
        Other errors as of ``parts``.
    """
    if path is None:
        finished, state, made = 0, begin, 0
        while True:
            made += 1
            try:
                for sources, part in parts(finished, state):
                    finished, state, made = finished + sources, add(state, part), 1
                return state
            except WorkerLostError as error:
                # What is finished needs no worker.
                if not graph.begins_again(error, made):
                    raise
    checkpoint = Checkpoint(graph, measure, made_of, begin, Path(path))
    try:
        for sources, part in parts(checkpoint.finished, checkpoint.state):
            checkpoint.take(checkpoint.finished + sources, add(checkpoint.state, part))
    finally:
        checkpoint.save()
    return checkpoint.state


class Checkpoint:
    """The state of a measure. Arguments and errors are those of ``folded``.

    Attributes:
        finished: number of sources that are finished.
        state: what the measure keeps of these.
    """

    def __init__(self, graph: StripedGraph, measure: str, made_of: tuple[Array, ...], begin: Array, path: Path) -> None:
        from dbfs.edges.writers.target import Target

        self._graph, self._version, self._target = graph, graph.version, Target.at(path)
        vertices = hashlib.blake2b(b"".join(array.tobytes() for array in made_of), digest_size=16)
        kind = "directed" if graph.directed else "undirected"
        self._told = {
            "measure": measure,
            "graph": f"{kind}, {graph.n} vertices, edges {_edge_digest(graph):016x}",
            "set of sources": f"{made_of[0].size} sources, digest {vertices.hexdigest()}",
        }
        self.finished, self.state = self._read(begin)
        self._saved, self._due = -1, 0.0
        # The first save shows whether the file can be written, before the work begins.
        self.save()

    def take(self, finished: int, state: Array) -> None:
        """Take the state after more sources, and save it if the last save was long ago."""
        self._graph.require_version(self._version, f"the checkpoint {self._target.path}")
        self.finished, self.state = finished, state
        if time.monotonic() > self._due:
            self.save()

    def save(self) -> None:
        """Replace the file, unless it has this state already."""
        if self._saved == self.finished:
            return
        start = time.monotonic()
        with self._target.opened("") as sink:
            np.savez(sink.stream, told=json.dumps(self._told), finished=self.finished, state=self.state)
        self._saved, end = self.finished, time.monotonic()
        self._due = end + _PAUSE * (end - start)

    def _read(self, begin: Array) -> tuple[int, Array]:
        path = self._target.path
        if not path.exists():
            return 0, begin
        try:
            with np.load(path, allow_pickle=False) as kept:
                told, finished, state = json.loads(str(kept["told"])), int(kept["finished"]), kept["state"]
        except OSError as error:
            raise UnreadableFileError(f"checkpoint {path} can't be read: {error.strerror or error}") from error
        except (ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise FormatError(f"{path} is no checkpoint of a measure; give the name of a new file") from error
        for name, ours in self._told.items():
            if told.get(name) != ours:
                raise InvalidOptionError(
                    f"{path} is the checkpoint of another {name}: {told.get(name)}, not {ours}; delete the file, or "
                    "name another one"
                )
        return finished, state


def _edge_digest(graph: StripedGraph) -> int:
    """Return a digest of the edges, the same for any number of ranks; another order of the vertices has another one."""
    arguments = [(Ref(key),) for key in graph.partition_keys]
    doing = f"computing the digest of {graph.name}"
    digests: list[int] = graph.gang.on_each_rank("edge-digest", queries.edge_digest, arguments, of_call(), doing)
    return sum(digests) % 2**64
