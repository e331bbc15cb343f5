"""Catalogs: YAML files that list saved graphs by name, to be loaded when a scheduler has started anew.

A catalog has the one key ``graphs``. Below it each name has ``folder``, the folder of the saved graph, and arguments of
``dbfs.load``, the keys of ``_OPTIONS``::

    graphs:
      web: {folder: /data/graphs/web}
      roads: {folder: /data/graphs/roads, ranks: 4, mutable: true}

A graph takes as many ranks as saved it, unless ``ranks`` says otherwise. It is loaded when so many workers have joined.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from dbfs import config
from dbfs.base.records import BACKENDS
from dbfs.base.units import format_seconds
from dbfs.building.build import AUTO, IDS, ORDERS
from dbfs.cluster.deadline import limit
from dbfs.cluster.gang import joined_workers
from dbfs.edges.readers import from_file
from dbfs.errors import (
    ClientError,
    DbfsError,
    DeadlineExceededError,
    FormatError,
    GraphNotFoundError,
    InvalidOptionError,
    MissingFileError,
    NameTakenError,
    SchedulerLostError,
    UnreadableFileError,
)
from dbfs.features.grid.layout import LAYOUTS
from dbfs.features.saved.edges import SavedEdges
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult
from dbfs.service.listing import graphs
from dbfs_workers.base.received import require
from dbfs_workers.base.text import GraphName, counted

if TYPE_CHECKING:
    import distributed

WAITS, LOADED, PRESENT, FAILED = "waits", "loaded", "present", "failed"

Load = Callable[..., Graph[BFSResult]]
Open = Callable[..., Graph[BFSResult]]

# Seconds between two looks whether workers have joined, or a name is free.
_LOOK_SECONDS: Final = 0.5


def _one_of(*choices: str) -> tuple[str, Callable[[Any], bool]]:
    return f"one of {', '.join(choices)}", lambda value: value in choices


def _count(least: int) -> tuple[str, Callable[[Any], bool]]:
    return f"a whole number of at least {least}", lambda value: type(value) is int and value >= least


_FLAG: Final = ("true or false", lambda value: isinstance(value, bool))
# By key of an entry, what its value must be, in words and as a check.
_OPTIONS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "folder": ("the folder, or the URL, of a saved graph", lambda value: isinstance(value, str) and value != ""),
    "ranks": _count(1),
    "backend": _one_of(*BACKENDS),
    "layout": _one_of(*LAYOUTS, AUTO),
    "order": _one_of(*ORDERS),
    "ids": _one_of(*IDS),
    "in_edges": _FLAG,
    "keep_edges": _FLAG,
    "mutable": _FLAG,
    "mapped": _FLAG,
    "room": _count(0),
    "checkpoint": ("the graph's own folder, which keeps its updates", lambda value: isinstance(value, str)),
}


@dataclass(frozen=True)
class Entry:
    """A graph of a catalog.

    Attributes:
        name: the graph's name in the cluster.
        where: the catalog and the line of the name.
        edges: the saved graph.
        options: arguments of ``load``.
    """

    name: str
    where: str
    edges: SavedEdges
    options: Mapping[str, Any]
    ranks: int


@dataclass(frozen=True)
class Step:
    """What happened to a graph of a catalog.

    Attributes:
        name: the graph's name.
        state: ``waits`` (for workers, or for the name), ``loaded``, ``present`` (it was loaded before) or ``failed``.
        words: the same in words.
    """

    name: str
    state: str
    words: str


def read(path: str | os.PathLike[str]) -> tuple[list[Entry], list[Step]]:
    """Read a catalog, and open its saved graphs.

    Returns:
        The graphs to load, and a step for each entry with a fault, which keeps no other from being loaded.

    Raises:
        MissingFileError, UnreadableFileError: the file does not exist, or can't be read.
        FormatError: the file is no catalog, or has a name twice; the message has the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        loader = config.UniqueKeyLoader(text)
        node = loader.get_single_node()
        found = None if node is None else loader.construct_document(node)
    except FileNotFoundError:
        raise MissingFileError(f"catalog {path}: no such file") from None
    except OSError as error:
        raise UnreadableFileError(f"catalog {path}: can't be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"catalog {path}: not YAML: {' '.join(str(error).split())}") from error
    right = "a catalog has the one key graphs, such as graphs: {web: {folder: /data/graphs/web}}"
    if not isinstance(found, dict) or list(found) != ["graphs"] or not isinstance(found["graphs"] or {}, dict):
        raise FormatError(f"catalog {path}: {right}")
    if node is None or not found["graphs"]:
        return [], []
    lines = [key.start_mark.line + 1 for key, _ in node.value[0][1].value]
    entries, refused = list[Entry](), list[Step]()
    for line, (name, options) in zip(lines, found["graphs"].items(), strict=True):
        where = f"{path}, line {line}"
        try:
            entries.append(_opened(name, where, options))
        except DbfsError as error:
            refused.append(_failed(str(name), where, error))
    return entries, refused


def _opened(name: object, where: str, options: object) -> Entry:
    """Check an entry, and open its saved graph. Raise ``DbfsError`` if it has a fault."""
    if not isinstance(name, str):
        raise InvalidOptionError(f"a name must be a text, not {name!r}; write it in quotes")
    require(name, GraphName, "name")
    if not isinstance(options, dict):
        raise InvalidOptionError(f"must be a mapping such as {{folder: /data/graphs/web}}, not {options!r}")
    for key, value in options.items():
        if key not in _OPTIONS:
            raise InvalidOptionError(f"unknown key {key!r}; the keys are {', '.join(_OPTIONS)}")
        right, fits = _OPTIONS[key]
        if not fits(value):
            raise InvalidOptionError(f"{key} must be {right}, not {value!r}")
    folder = options.get("folder")
    if folder is None:
        raise InvalidOptionError(f"folder is missing, {_OPTIONS['folder'][0]}")
    edges = from_file(folder)
    if not isinstance(edges, SavedEdges):
        raise InvalidOptionError(f"{folder} is no saved graph; Graph.save and dbfs save write one")
    others = {key: value for key, value in options.items() if key not in ("folder", "ranks")}
    return Entry(name, where, edges, others, options.get("ranks", len(edges.manifest.ranks)))


def load_all(entries: Sequence[Entry], client: distributed.Client, load: Load, open_: Open) -> Iterator[Step]:
    """Load the graphs of a catalog into a cluster, each when enough workers have joined; yield what happens.

    ``load`` and ``open_`` are ``dbfs.load`` and ``dbfs.open``.

    A graph whose name is in use is passed over. One that lost a rank is unloaded first, and loaded again. The graphs
    that are not loaded ``dbfs.build-deadline`` after the call have failed.

    Raises:
        SchedulerLostError, ClientError: the scheduler is lost, or the client is closed.
    """
    seconds = config.seconds("build-deadline")
    end = time.monotonic() + seconds
    pending, waits = list(entries), dict[str, Step]()
    while pending:
        late = time.monotonic() > end
        for entry in list(pending):
            step = _attempt(entry, client, max(1.0, end - time.monotonic()), load, open_)
            if step.state == WAITS and late:
                words = f"after {format_seconds(seconds)} (dbfs.build-deadline) it still {step.words}"
                step = _failed(entry.name, entry.where, DeadlineExceededError(words))
            if step.state != WAITS:
                pending.remove(entry)
            if waits.get(entry.name) != step:
                yield step
            waits[entry.name] = step
        if pending:
            time.sleep(_LOOK_SECONDS)


def _attempt(entry: Entry, client: distributed.Client, seconds: float, load: Load, open_: Open) -> Step:
    """Load a graph, if it is not there and its workers are; errors as for ``load_all``."""
    try:
        lost = any(status.lost for status in graphs(client=client) if status.name == entry.name)
        with contextlib.suppress(GraphNotFoundError):
            open_(entry.name, client=client)
            if not lost:
                return Step(entry.name, PRESENT, "is loaded")
        with limit(seconds):
            joined = len(joined_workers(client))
        if joined < entry.ranks:
            return Step(entry.name, WAITS, f"waits for {counted(entry.ranks, 'worker')}, {joined} joined")
        # No call can use a graph that lost a rank.
        options = dict(entry.options) | {"ranks": entry.ranks, "replace": "first" if lost else False}
        with limit(seconds):
            graph = load(entry.edges, client=client, name=entry.name, deadline=seconds, **options)
    except NameTakenError as error:
        # Another client builds the graph, or has a graph without a name that is listed under this one.
        return Step(entry.name, WAITS, f"waits: {error}")
    except (SchedulerLostError, ClientError):
        raise
    except Exception as error:
        return _failed(entry.name, entry.where, error)
    took = format_seconds(graph.build_seconds)
    return Step(entry.name, LOADED, f"loaded on {counted(graph.ranks, 'rank')} in {took}")


def _failed(name: str, where: str, error: Exception) -> Step:
    return Step(name, FAILED, f"not loaded ({where}): {type(error).__name__}: {error}")
