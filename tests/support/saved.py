"""Saved graphs to load, to look into and to mangle."""

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import numpy as np

import dbfs
from dbfs.assembly import Graph
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.manifest import Manifest
from tests.support import oracle
from tests.support.graphs import Arrays

Json = dict[str, Any]


def load_arrays(client: distributed.Client, arrays: Arrays, *, directed: bool = False, **options: Any) -> Graph:
    """Load a graph of arrays, a directed one with its in-edges."""
    n, src, dst = arrays
    edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
    return dbfs.load(edges, client=client, in_edges=directed, **options)


def assert_same(graph: Graph, arrays: Arrays, like: Graph, source: int = 0) -> None:
    """Check a loaded graph against SciPy, and its counts against those of the graph that was saved."""
    n, src, dst = arrays
    matrix = oracle.adjacency(n, src, dst, directed=graph.directed)
    result = graph.bfs(source, predecessors=True, validate=True)
    np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))
    oracle.assert_valid_parents(matrix, result.distances(), result.predecessors(), [source])
    assert counts(graph) == counts(like)
    assert graph.directed == like.directed
    if like.order is not None:
        assert graph.order is not None
        np.testing.assert_array_equal(graph.order.vertex, like.order.vertex)
        np.testing.assert_array_equal(graph.order.position, like.order.position)
    else:
        assert graph.order is None
    assert graph.record.infos[0].has_parents == like.record.infos[0].has_parents
    assert bool(graph.record.input_edge_keys) == bool(like.record.input_edge_keys)


def counts(graph: Graph) -> tuple[int, ...]:
    """The counts of a graph that the number of ranks does not change."""
    return graph.n, graph.m, graph.input_edges, graph.self_loops, graph.duplicates, graph.max_degree


def read_manifest(path: Path) -> Manifest:
    """The manifest of a saved graph."""
    return manifests.read(Folder(str(path)))


def change_manifest(path: Path, change: Callable[[Json], object]) -> None:
    """Change a manifest's graph as another program would that computes the checksum again."""
    file = path / manifests.NAME
    found = json.loads(file.read_text())
    change(found["graph"])
    text = json.dumps(found["graph"], sort_keys=True, separators=(",", ":"))
    found["checksum"] = zlib.crc32(text.encode())
    file.write_text(json.dumps(found))


def change_array(path: Path, rank: int, name: str, change: Callable[[Any], object], what: str = "partition") -> None:
    """Change an array in a file of a saved graph, and compute the file's checksums again."""

    def apply(graph: Json) -> None:
        if what == "ids":
            file = graph["ids"]["tables"][rank]["file"]
        else:
            file = graph["order"] if what == "order" else graph["ranks"][rank][what]
        place = next(place for place in file["arrays"] if place["name"] == name)
        content = bytearray((path / file["name"]).read_bytes())
        change(np.frombuffer(content, place["dtype"], place["length"], place["offset"]))
        (path / file["name"]).write_bytes(content)
        size = file["block_bytes"]
        file["checksums"] = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]

    change_manifest(path, apply)


def copied(path: Path, to: Path) -> Path:
    """A copy of a saved graph."""
    shutil.copytree(path, to)
    return to


def put(at: int, value: int) -> Callable[[Any], None]:
    """Return the change of an array that puts a value at an index."""

    def change(array: Any) -> None:
        array[at] = value

    return change
