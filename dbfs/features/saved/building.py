"""Loading of saved graphs. With the number of ranks that saved it each rank takes its file as it is.

A rank copies the file, or maps it. Whoever truncates a file that is mapped ends the process (SIGBUS), so that files
which others hold are copied: see ``edges.MappedFiles``.

With another number of ranks, or another layout, the graph is built of the edges in the files, as of any edge list.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import distributed

from dbfs.base.records import Beside, GraphIds
from dbfs.building.attributes import NO_ATTRIBUTES, AttributeTasks
from dbfs.building.builder import BuildOptions, BuiltGraph, PartitionMaker
from dbfs.building.memory import (
    Estimate,
    estimate_bytes,
    estimate_device_bytes,
    hosts_of,
    require_fit,
    require_fit_gpus,
)
from dbfs.building.standing import Standing
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, host_of, release, run_on
from dbfs.edges.readers.source import require_listed, require_readable
from dbfs.errors import FormatError, InvalidOptionError
from dbfs.features.saved.reader import SavedFiles, forget_vertices, vertex_rows
from dbfs_workers.base.folder import Folder
from dbfs_workers.base.text import counted
from dbfs_workers.features.saved import parts as saved_parts
from dbfs_workers.features.saved import tasks
from dbfs_workers.features.saved.columns import schema_of
from dbfs_workers.features.saved.manifest import Manifest, SavedColumn, SavedColumns, SavedFile
from dbfs_workers.features.saved.parts import RankFacts
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.serving.queries import same_value

logger = logging.getLogger(__name__)

Loaded = TypeVar("Loaded")


def layout(edges: SavedFiles, options: BuildOptions) -> BuildOptions:
    """Return the layout of a saved graph: its own where the options leave that open. Errors as for ``build``."""
    manifest = edges.manifest
    if options.keep_edges and not manifest.keeps_edges:
        raise InvalidOptionError(
            f"{edges.name} was saved without its input edges; load it with keep_edges=False, "
            f"or build it again of {manifest.source}"
        )
    own = "given" if manifest.order is None else "degree"
    in_edges = options.in_edges or manifest.in_edges
    return replace(options, in_edges=in_edges, order=options.order or own, keep_edges=manifest.keeps_edges)


def is_as_saved(edges: SavedFiles, ranks: int, options: BuildOptions) -> bool:
    """Return whether ranks can take their files as they are; ``options`` as returned by ``layout``."""
    manifest = edges.manifest
    ordered = manifest.order is not None
    same_layout = options.in_edges in (manifest.in_edges, not edges.directed) or manifest.in_edges
    same_rows = len(manifest.ranks) == ranks and options.room in (0, manifest.room) and options.layout == "1d"
    same_order = options.order == ("degree" if ordered else "given")
    return same_rows and same_order and same_layout


def estimate_as_saved(
    edges: SavedFiles, backend: str, memory: int | None = None, *, hosts: Hosts | None = None
) -> Estimate:
    """Estimate the bytes of the rank with the most edges, which takes its file as it is: there is no build.

    A file that is mapped counts as one that is copied. ``hosts`` says which ranks share memory, if they are on CPUs.
    """
    manifest = edges.manifest
    stripe, files = manifest.stripe, [rank.edges for rank in manifest.ranks if rank.edges is not None]
    m_local = max(place.length for rank in manifest.ranks for place in rank.partition.arrays[1::2])
    kept = max((sum(place.length for place in file.arrays[::2]) for file in files), default=0)
    options: dict[str, Any] = {
        "in_edges": manifest.in_edges,
        "ordered": manifest.order is not None,
        "kept_edges": stripe.p * kept,
    }
    if backend == "cuda":
        needed = estimate_device_bytes(stripe, stripe.p * m_local, 0, directed=edges.directed, **options)
    else:
        needed = estimate_bytes(stripe, stripe.p * m_local, 0, hosts=hosts, **options)
        if manifest.order is not None:
            # On rank 0: the vertices by position, as saved, and the positions.
            needed.partition["degree order"] = 8 * manifest.n
        if manifest.ids.tables:
            needed.partition["ids"] = _largest_table(manifest)
        if manifest.columns is not None:
            needed.partition["attributes"] = _column_bytes(manifest.columns)
    needed = replace(needed, build={}, memory=memory)
    return replace(needed, peaks=(needed.peak_bytes,))


def _largest_table(manifest: Manifest) -> int:
    """Return the bytes of the largest table of ids on a rank."""
    sizes = [table.file.nbytes for table in manifest.ids.tables]
    ranges = _id_ranges(manifest, len(manifest.ranks))
    return max(sizes) if len(ranges) == len(sizes) else -(-sum(sizes) // len(ranges))


def _column_bytes(columns: SavedColumns) -> int:
    """Return the bytes of the columns on the rank that has the most."""

    def nbytes(file: SavedFile | None, of: tuple[SavedColumn, ...]) -> int:
        names = {column.name for column in of}
        places = () if file is None else file.arrays
        return sum(place.end - place.offset for place in places if place.name.partition(".")[2] in names)

    return max(
        nbytes(each.out, columns.edges) + nbytes(each.into, columns.edges) + nbytes(each.vertices, columns.vertices)
        for each in columns.ranks
    )


def load_ids(
    edges: SavedFiles,
    gang: Gang,
    options: BuildOptions,
    token: str,
    watch: Callable[[], None] | None,
    standing: Standing | None = None,
) -> tuple[GraphIds, tuple[distributed.Future, ...]]:
    """Load the tables of a saved graph's ids, on as many of the first ranks as there are tables.

    Returns how ids map to vertices, and the futures of the tables; both as in ``BuiltGraph``.

    Args:
        edges: the saved graph.
        gang: the workers that hold its ranks.
        options: its layout.
        token: the end of the tasks' names.
        watch: called now and then while the client waits; None to call nothing.
        standing: what is left of the graph, whose tables stay if none of them is lost.

    Errors as for ``tasks.saved.load_partition``.
    """
    manifest, saved = edges.manifest, edges.manifest.ids
    if options.ids == "dense" or (not saved.tables and saved.id_type.is_integer):
        return options.offset_ids(edges), ()
    if standing is not None and min(standing.lost) >= len(standing.record.ids.keys):
        return standing.record.ids, ()
    graph, ranges = TaskGraph(), _id_ranges(manifest, gang.p)
    tables, ends = [], []
    for rank, (first, stop) in enumerate(ranges):
        here = tuple(table for table in saved.tables if table.first < stop and first < table.first + table.length)
        options_here = (edges.folder, here, saved.id_type, first, stop)
        tables.append(graph.add(rank, (f"id-table-{token}", rank), on_listed, saved_parts.id_table, *options_here))
        ends.append(graph.add(rank, (f"id-ends-{token}", rank), saved_parts.ends, tables[-1]))
    futures = gang.submit(graph, [ref.key for ref in (*tables, *ends)])
    try:
        waited = [futures[ref.key] for ref in ends]
        deadline = of_call("build-deadline")
        found = gang.gather(waited, deadline, f"loading the ids of {edges.name}", watch)
        bounds = [end for end in found if end is not None]
        if any(last >= first for (_, last), (first, _) in pairwise(bounds)):
            raise FormatError(f"{edges.name}: the ids of the vertices do not ascend from one file to the next")
    except BaseException:
        release(futures.values())
        raise
    release(waited)
    keys, firsts = tuple(ref.key for ref in tables), tuple(first for first, _ in ranges)
    splitters = tuple(first for first, _ in bounds[1:])
    ids = GraphIds(0, saved.id_type, keys, firsts, splitters, ranges[-1][1])
    return ids, tuple(futures[key] for key in keys)


def _id_ranges(manifest: Manifest, p: int) -> list[tuple[int, int]]:
    """Return the first vertex, and the one after the last, of each table on at most ``p`` ranks."""
    tables = manifest.ids.tables
    if tables and len(tables) <= p:
        return [(table.first, table.first + table.length) for table in tables]
    count = max(1, min(p, manifest.n))
    return [(rank * manifest.n // count, (rank + 1) * manifest.n // count) for rank in range(count)]


@contextmanager
def restriping(gang: Gang) -> Iterator[None]:
    """Free the vertices that workers read once for all pieces of a saved graph, when the build of them is over."""
    try:
        yield
    finally:
        with suppress(Exception):
            run_on(gang.client, forget_vertices, workers=gang.addresses, on_error="ignore")


def as_first_built(built: BuiltGraph, edges: SavedFiles, gang: Gang, options: BuildOptions) -> BuiltGraph:
    """Return a graph that was built from saved edges, with the ids and the number of input edges of its first build.

    Its vertices have their columns again. After an error the graph is freed; errors as for ``load_ids`` and
    ``reader.vertex_rows``.
    """
    try:
        ids, tables = load_ids(edges, gang, options, uuid.uuid4().hex, None)
        built = replace(built, ids=ids, id_tables=tables)
        built = _with_vertex_columns(built, edges, gang, options)
    except BaseException:
        release(built.futures)
        raise
    return replace(built, infos=tuple(replace(info, input_edges=edges.manifest.input_edges) for info in built.infos))


def _with_vertex_columns(built: BuiltGraph, edges: SavedFiles, gang: Gang, options: BuildOptions) -> BuiltGraph:
    columns, keeper = edges.manifest.columns, options.keeper
    if columns is None or not columns.vertices or keeper is None:
        return built
    plan, order, token = TaskGraph(), None, uuid.uuid4().hex
    keys = [(f"vertex-attributes-{token}", rank) for rank in range(gang.p)]
    if built.order is not None:
        # The ranks get copies of this one: of copies of the graph's own order Dask may keep one on any rank.
        order = plan.add(0, (f"attributes-order-{token}", 0), same_value, Ref(built.order.key))
    for rank, key in enumerate(keys):
        plan.add(rank, key, vertex_rows, edges.folder, edges.manifest, built.stripe, rank, order)
    futures = gang.submit(plan, keys)
    try:
        gang.finish([*futures.values()], of_call("build-deadline"), f"loading the vertices' columns of {edges.name}")
    except BaseException:
        release(futures.values())
        raise
    beside = keeper.with_vertices(built.beside, keys, schema_of(columns.vertices))
    return replace(built, attributes=(*built.attributes, *(futures[key] for key in keys)), beside=beside)


class SavedLoad(PartitionMaker):
    """The load of a saved graph on as many ranks as saved it. The caller releases ``held`` after ``run``.

    Args:
        edges: the saved graph.
        gang: the workers that hold its ranks.
        options: its layout.
        backend: ``cuda`` to leave the partitions on the workers' GPUs; else ``cpu``.

    Attributes:
        held: futures of the load, except those of the result.
        watch: called now and then while the client waits; None to call nothing.
    """

    def __init__(self, edges: SavedFiles, gang: Gang, options: BuildOptions, backend: str) -> None:
        self.edges = edges
        self.options = options
        self.gang = gang
        self.backend = backend
        self.token = uuid.uuid4().hex
        self.held: set[distributed.Future] = set()
        self.watch: Callable[[], None] | None = None

    def run(self) -> BuiltGraph:
        """Load the graph; errors as of ``dbfs.building.build.build``."""
        start = time.perf_counter()
        edges, gang, manifest = self.edges, self.gang, self.edges.manifest
        require_readable(edges.path, shared=gang.client.cluster is None)
        self._require_fit()
        ids, tables = load_ids(edges, gang, self.options, self.token, self.watch, self.standing)
        self.held.update(tables)
        graph = TaskGraph()
        parts, infos, kept, order, counts = self._add_tasks(graph)
        attributes, vertices = self._add_columns(graph, [Ref(key) for key in parts])
        columns = (*attributes.kept, *vertices)
        futures = gang.submit(graph, [*parts, *infos, *kept, *order, *counts, *columns, *attributes.awaited])
        self.held.update(futures.values())
        awaited = [futures[key] for key in (*infos, *attributes.awaited, *counts)]
        deadline = of_call("build-deadline")
        found = gang.gather(awaited, deadline, f"loading {edges.name}", self.watch)
        gang.finish([futures[key] for key in vertices], deadline, f"loading {edges.name}")
        told = found[gang.p : gang.p + len(attributes.awaited)]
        seconds = time.perf_counter() - start
        logger.info("loaded %s: %d vertices, %d edges, %.2f s", edges.name, manifest.n, manifest.m, seconds)
        built = BuiltGraph(
            stripe=manifest.stripe,
            partitions=tuple(futures[key] for key in parts),
            infos=tuple(found[: gang.p]),
            ids=ids,
            id_tables=tables,
            order=futures[order[0]] if order else None,
            input_edges=tuple(futures[key] for key in kept),
            read_seconds=0.0,
            seconds=seconds,
            attributes=tuple(futures[key] for key in columns),
            beside=self._beside(attributes.beside(told), vertices),
        )
        self.held -= set(built.futures)
        return built

    def _add_tasks(self, graph: TaskGraph) -> tuple[list[Key], ...]:
        """Add the tasks; return the keys of partitions, of their counts, of kept edges, of the order, of more counts.

        The client waits for counts, since all else stays on the workers.
        """
        manifest, folder, standing = self.edges.manifest, self.edges.folder, self.standing
        here = Counter(map(host_of, self.gang.addresses))
        parts, infos, kept, order, counts = [], [], [], [], []
        for rank, saved in enumerate(manifest.ranks):
            facts = RankFacts(manifest.stripe, rank, manifest.directed, manifest.input_edges)
            where = (self.backend, here[host_of(self.gang.addresses[rank])])
            key = (f"partition-{self.token}", rank)
            stands = standing and standing.partition(rank)
            parts.append(stands or graph.add(rank, key, on_listed, tasks.load_partition, folder, saved, facts, *where))
            infos.append(graph.add(rank, (f"partition-info-{self.token}", rank), tasks.describe, parts[-1]))
            if saved.edges is not None:
                key = (f"input-edges-{self.token}", rank)
                if standing and stands:
                    kept.append(Ref(standing.record.input_edge_keys[rank]))
                    continue
                kept.append(graph.add(rank, key, on_listed, tasks.load_edges, folder, saved, facts, *where))
                counts.append(graph.add(rank, (f"count-edges-{self.token}", rank), tasks.count, kept[-1]))
        key = (f"degree-order-{self.token}", 0)
        if standing and standing.order:
            # Of its copies Dask may have kept one on another rank.
            order.append(graph.add(0, key, same_value, standing.order))
        elif manifest.order is not None:
            where = (self.backend, here[host_of(self.gang.addresses[0])])
            order.append(graph.add(0, key, on_listed, tasks.load_order, folder, manifest.order, *where))
        counts += [graph.add(0, (f"order-{self.token}", 0), tasks.count, each) for each in order]
        return tuple([ref.key for ref in refs] for refs in (parts, infos, kept, order, counts))

    def _add_columns(self, graph: TaskGraph, partitions: list[Ref]) -> tuple[AttributeTasks, list[Key]]:
        """Add the tasks of the columns; return those of the edges, and by rank the keys of the vertices' tables."""
        manifest, folder, keeper = self.edges.manifest, self.edges.folder, self.options.keeper
        columns, attributes, vertices = manifest.columns, NO_ATTRIBUTES, list[Key]()
        if columns is None or keeper is None:
            return attributes, vertices
        here = Counter(map(host_of, self.gang.addresses))

        def table(rank: int, what: str, file: SavedFile, of: tuple[SavedColumn, ...], rows: int) -> Ref:
            key = (f"{what}-{self.token}", rank)
            arguments = (file, of, rows, here[host_of(self.gang.addresses[rank])])
            return graph.add(rank, key, on_listed, tasks.load_columns, folder, *arguments)

        ways = list[tuple[Ref, Ref | None]]()
        for rank, (saved, files) in enumerate(zip(manifest.ranks, columns.ranks, strict=True)):
            sizes = [place.length for place in saved.partition.arrays[1::2]]
            if files.out is not None:
                out = table(rank, "columns", files.out, columns.edges, sizes[0])
                into = None
                if files.into is not None:
                    into = table(rank, "in-columns", files.into, columns.edges, sizes[1])
                ways.append((out, into))
            if files.vertices is not None:
                owned = manifest.stripe.owned(rank)
                ref = table(rank, "vertex-attributes", files.vertices, columns.vertices, owned)
                vertices.append(ref.key)
        if ways:
            of_edges = (schema_of(columns.edges), partitions, self.edges.name, self.token)
            attributes = keeper.add_loaded(graph, ways, *of_edges)
        return attributes, vertices

    def _beside(self, beside: Beside | None, vertices: list[Key]) -> Beside | None:
        columns, keeper = self.edges.manifest.columns, self.options.keeper
        if not vertices or columns is None or keeper is None:
            return beside
        return keeper.with_vertices(beside, vertices, schema_of(columns.vertices))

    def _require_fit(self) -> None:
        """Raise ``GraphTooLargeError`` if the graph won't fit the workers, or their GPUs."""
        needed = estimate_as_saved(self.edges, self.backend, hosts=hosts_of(self.gang))
        stripe = self.edges.manifest.stripe
        if self.backend != "cuda":
            require_fit(self.makers, counted(stripe.n, "vertex", "vertices"), needed, self.edges.name)
            return
        require_fit_gpus(self.gang, stripe, needed, self.edges.name)


def on_listed(function: Callable[..., Loaded], folder: Folder, *arguments: Any) -> Loaded:
    """Check this worker's configuration, and call a function of ``dbfs_workers.features.saved.tasks``."""
    require_listed(folder.path)
    return function(folder, *arguments)
