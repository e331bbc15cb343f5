"""The options ``rebuild`` and ``checkpoint`` of ``load``."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import distributed

from dbfs.base.records import GraphRecord
from dbfs.building.builder import AUTO, STRIPES, BuildOptions
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, release
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.options import ReadOptions
from dbfs.errors import DbfsError, InvalidOptionError
from dbfs.features.rebuild.lineage import Lineage
from dbfs.features.rebuild.messages import AwaitLoss, KeepLineage
from dbfs.features.rebuild.rebuilding import bring_back
from dbfs.features.rebuild.versions import log_of, logged, places_of, redone, reports_of
from dbfs.features.saved.edges import SavedEdges, open_saved, saved_folder
from dbfs.graph.load import LoadOption
from dbfs.graph.striped import StripedGraph
from dbfs.service.client import ServiceClient
from dbfs.service.messages import Reports
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.rebuild.log import Decision
from dbfs_workers.serving.rpc import PickledValue

REBUILDS: Final = ("lazy", "eager", "never")

# Seconds that a question whether a graph lost a rank waits for the loss.
_AWAIT_SECONDS: Final = 30.0


class Rebuild(LoadOption):
    """When a graph that lost a worker is built again, and of what.

    Args:
        when: one of ``REBUILDS``.
        source: the edges as the caller gave them.
        reading: the arguments of ``edge_list`` with which they are opened.
        options_of: returns the build's options.
        checkpoint: the folder or URL where the graph is kept for that, as a saved graph; None for none.

    Raise ``InvalidOptionError`` for another ``when``, or for a checkpoint of a graph that never comes back.
    """

    def __init__(
        self,
        when: str,
        source: Any,
        reading: Mapping[str, Any],
        options_of: Callable[[], BuildOptions],
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        if when not in REBUILDS:
            raise InvalidOptionError(f"unknown rebuild {when!r}; choose one of {', '.join(REBUILDS)}")
        if when == "never" and checkpoint is not None:
            raise InvalidOptionError("checkpoint= is for graphs that are built again: leave out rebuild='never'")
        self._when = when
        self._checkpoint = checkpoint
        self._source = source
        self._reading = reading
        self._options_of = options_of
        self._lineage: Lineage | None = None
        self._edges: EdgeList | None = None
        self._versions = list[Decision]()
        # Whether the edges are the checkpoint, whose log goes on.
        self._goes_on = False

    def take_edges(self, edges: EdgeList, *, shared: bool) -> EdgeList:
        """See ``LoadOption``: note the state of the source before it is read."""
        self._edges, self._versions = edges, logged(edges)
        if self._checkpoint is not None and (folder := saved_folder(self._checkpoint)) is not None:
            own = edges.folder.path if isinstance(edges, SavedEdges) else ""
            self._goes_on = os.path.realpath(folder.path) == os.path.realpath(own)
            if not self._goes_on:
                raise InvalidOptionError(
                    f"checkpoint={os.fsdecode(self._checkpoint)!r} has a graph already, which may be another one; give "
                    "a folder of its own, or load that graph"
                )
            # Loads pyarrow, as below.
            from dbfs.edges.writers.target import require_writable

            require_writable(folder.path, shared=shared)
        if self._when != "never" and (self._checkpoint is None or self._goes_on):
            self._lineage = Lineage.of(self._source, self._reading, edges, self._options_of())
        return edges

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        """See ``LoadOption``: check what a log of versions needs.

        Raises:
            InvalidOptionError: the ranks are on GPUs, or others than the log's; or the checkpoint is in a store; or it
                is the graph's own folder, and the graph takes no updates.
        """
        options = self._options_of()
        if self._goes_on and not mutable:
            raise InvalidOptionError(
                "checkpoint= is the graph's own folder: leave it out, or take mutable=True to have updates kept there"
            )
        if mutable and self._checkpoint is not None:
            if backend != "cpu":
                raise InvalidOptionError(
                    "checkpoint= with mutable=True is for ranks on CPU cores, which can make versions again: take "
                    "backend='cpu', or leave checkpoint= out"
                )
            if not Folder.at(self._checkpoint).local:
                raise InvalidOptionError(
                    f"checkpoint={os.fsdecode(self._checkpoint)!r} is in a store, which can't add to a log: give a "
                    "folder on a disk that all workers share"
                )
        edges = self._edges
        if (self._versions or self._goes_on) and isinstance(edges, SavedEdges):
            own = "given" if edges.manifest.order is None else "degree"
            same = ranks == len(edges.manifest.ranks) and options.room in (0, edges.manifest.room)
            if backend != "cpu" or not same or (options.order or own) != own or options.layout not in (AUTO, STRIPES):
                raise InvalidOptionError(
                    f"{edges.name} has a log of {len(self._versions):,} versions, which {len(edges.manifest.ranks)} "
                    "ranks on CPU cores made: load it on as many, without order= and layout="
                )

    def add_data(self, record: GraphRecord, gang: Gang) -> tuple[GraphRecord, list[distributed.Future]]:
        """See ``LoadOption``: make the versions again that a saved graph's log has, and begin a log.

        Raises:
            FormatError: the log is damaged.
            OutputError: the checkpoint can't be written.
        """
        futures = list[distributed.Future]()
        if self._versions:
            assert isinstance(self._edges, SavedEdges)
            if record.layout is not None:
                raise InvalidOptionError(f"{record.name} has a log of versions: load it with layout={STRIPES!r}")
            places = places_of(self._versions)
            record, futures = redone(gang, record, log_of(self._edges), places, range(gang.p), anew=not self._goes_on)
            if self._lineage is not None:
                self._lineage = replace(self._lineage, versions=places)
        if record.mutable and self._checkpoint is not None:
            if record.beside is not None:
                release(futures)
                raise InvalidOptionError(
                    f"{record.name} {record.beside.in_words}, which a log of versions lacks: load it without one of "
                    "checkpoint=, mutable=True and the columns"
                )
            try:
                # Before the graph takes updates.
                kept = self._edges if self._goes_on else self._saved(gang, record)
                assert isinstance(kept, SavedEdges)
                from dbfs.edges.writers.target import require_listed

                # Each worker's own configuration.
                path, limit = kept.folder.path, of_call("build-deadline")
                gang.on_each_rank("may-write", require_listed, [(path,)] * gang.p, limit, f"opening {path}")
            except BaseException:
                release(futures)
                raise
            record = replace(record, log=str(log_of(kept)))
        return record, futures

    def reports(self, record: GraphRecord) -> Reports:
        """See ``LoadOption``."""
        return reports_of(self._versions, record) if self._goes_on else ()

    def _saved(self, gang: Gang, record: GraphRecord) -> SavedEdges:
        """Save the graph, of which it can be built again from now on."""
        # Loads pyarrow.
        from dbfs.features.saved.saving import save

        assert self._checkpoint is not None
        save(gang, record, self._checkpoint, self._options_of().keeper, replace=False)
        kept = open_saved(Folder.at(self._checkpoint), ReadOptions())
        self._lineage = Lineage.of(self._checkpoint, {}, kept, self._options_of())
        return kept

    def finish(self, graph: StripedGraph) -> None:
        """See ``LoadOption``: have the scheduler keep the lineage, and watch a graph that is built again at once."""
        service = ServiceClient.of(graph.gang.client)
        if self._checkpoint is not None and not graph.record.log:
            self._saved(graph.gang, graph.record)
        lineage = self._lineage
        if self._when == "never":
            service.call(KeepLineage(graph.record.graph_id, None, "it was loaded with rebuild='never'"))
        elif lineage is not None:
            # The order and the layout that the load chose, so that a rebuild does not choose again.
            lineage = replace(lineage, options=self._options_of())
            if lineage.options.layout == AUTO:
                lineage = replace(lineage, options=replace(lineage.options, layout=graph.record.layout_name))
            saved = self._checkpoint is not None
            service.call(KeepLineage(graph.record.graph_id, PickledValue.of(lineage), None, saved))
            if self._when == "eager":
                _watch(graph)


def _watch(graph: StripedGraph) -> None:
    """Build a graph again as soon as it has lost a worker, in a thread, for as long as the graph's object lives."""
    kept, service = weakref.ref(graph), ServiceClient.of(graph.gang.client)
    graph_id = graph.record.graph_id

    def watch() -> None:
        while True:
            try:
                lost = service.call(AwaitLoss(graph_id, _AWAIT_SECONDS))
                here = kept()
                if here is None or here.unloaded:
                    return
                if lost:
                    bring_back(here)
                del here
            except DbfsError:
                # The graph was unloaded, or its client or scheduler is gone; or it can't be built again, which the
                # next call of the graph says.
                return

    threading.Thread(target=watch, name=f"dbfs-rebuild-{graph_id[:8]}", daemon=True).start()
