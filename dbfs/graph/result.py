"""BFSResult: the result of a traversal. Its labels stay striped on the workers until a caller reads them."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.integers import whole_count
from dbfs.base.units import format_rate, format_seconds
from dbfs.cluster.deadline import bounded
from dbfs.cluster.own_process import StaysHere
from dbfs.engines import LevelReport, Outcome, PublishedLabels
from dbfs.errors import InvalidOptionError, LabelsLostError, ResultReleasedError
from dbfs.graph import tables
from dbfs.graph.html import Card, first_ids
from dbfs.graph.labels import LabelReader, on_ranks
from dbfs.graph.striped import LabelsOnWorkers, StripedGraph
from dbfs.graph.tabular import Tabular, polars_frame
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.text import counted
from dbfs_workers.ids.label_table import NO_PREDECESSOR, data_frame, label_table, places_of, taken
from dbfs_workers.serving.reads.messages import KeptLabels

if TYPE_CHECKING:
    import os

    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds


@part_of("BFSResult")
class BFSResult(StaysHere, Tabular, LabelsOnWorkers):
    """The core's part of ``dbfs.BFSResult``, which lists the attributes: counts, labels and tables.

    Features add theirs in subclasses.
    """

    _inner = StaysHere._inner | {
        *("counts_edges", "distance_type", "label_location", "lost", "published_labels", "readable_labels", "reader"),
        *("vertices_between", "vertices_to"),
    }

    # Whether a distance is a number of edges.
    counts_edges = True
    distance_type: np.dtype[Any] = np.dtype(np.int32)

    def __init__(self, graph: StripedGraph, spec: TraversalSpec, engine: str, outcome: Outcome) -> None:
        self.graph = graph
        self.sources: tuple[Any, ...] = tuple(graph.python_ids(spec.sources))
        self.source_vertices = spec.sources
        self._take(spec, engine, outcome)

    @property
    def elsewhere(self) -> str:
        return "send distances(), to_arrow() or to_dict() instead"

    def _take(self, spec: TraversalSpec, engine: str, outcome: Outcome) -> None:
        """Take over the labels and counts of a traversal."""
        self.run_id = spec.run_id
        self.engine = engine
        self.spec = spec
        self.seconds = outcome.seconds
        self.setup_seconds = outcome.setup_seconds
        self.version = outcome.version
        self._graph_id = self.graph.record.graph_id
        self._source = outcome.labels
        self._labels: PublishedLabels | None = None
        # Labels that no caller read are dropped with the last reference to this object. Published labels are freed
        # with the last reference to their futures.
        self._dropping = weakref.finalize(self, outcome.labels.drop)
        self._dropping.atexit = False
        self.counters = dict(outcome.counters)
        self.depth = outcome.depth
        self._make_reports = outcome.levels
        vars(self).pop("reports", None)
        # Fetched for a path that is long to walk, and kept: callers read dozens of paths.
        self._path_parents: NDArray[np.int64] | None = None
        self._released = False
        self._counts = (outcome.reached, outcome.edges)

    @property
    def reached(self) -> int:
        """Number of vertices reached, the sources included."""
        return self._counts[0]

    @property
    def unreached(self) -> int:
        """Number of the graph's other vertices, deleted ones included."""
        return self.graph.n - self.reached

    @property
    def edges(self) -> int:
        """Directed edges of the traversed component (Merrill's count): the sum of the reached vertices' degrees."""
        return self._counts[1]

    @property
    def farthest(self) -> int | None:
        """Distance beyond which the traversal left vertices unreached; None if it reached all it could."""
        # If nothing was left to discover, the last level is number ``depth``, which discovered nothing.
        if self.spec.targets and (not self.reports or self.reports[-1].level + self.reports[-1].levels <= self.depth):
            return self.depth
        return self.spec.max_depth

    @property
    def mteps(self) -> float:
        """Directed edges of the traversed component per second, in millions."""
        return self.edges / self.seconds / 1e6 if self.seconds else 0.0

    @functools.cached_property
    def reports(self) -> tuple[LevelReport, ...]:
        """One report for each level; of a traversal of more than 4,096, one for several levels: see ``LevelReport``."""
        return self._make_reports()

    @property
    def levels(self) -> pd.DataFrame:
        """One row for each of ``reports``, with the columns of ``LevelReport``: times in seconds, sizes in bytes."""
        import pandas as pd

        columns = [name for name in LevelReport.__dataclass_fields__ if name != "phase_seconds"]
        rows = [[getattr(report, name) for name in columns] for report in self.reports]
        return pd.DataFrame(rows, columns=pd.Index(columns)).set_index("level")

    @bounded()
    def distances(self) -> NDArray[np.int32]:
        """Return int32[n] by vertex: the number of edges on a shortest path from the nearest source, -1 unreached.

        Raises:
            ResultReleasedError: the result was released.
            LabelsLostError: a worker that held labels is lost.
        """
        return self.reader().whole("distances")

    @bounded()
    def predecessors(self) -> NDArray[np.int64]:
        """Return int64[n] by vertex: the previous vertex on a shortest path, -1 unreached; a source is its own.

        Raises:
            InvalidOptionError: the run did not record predecessors.
            ResultReleasedError, LabelsLostError: see ``distances``.
        """
        self._require_predecessors()
        return self.reader().whole("predecessors")

    @bounded()
    def to_dask_array(self, label: str = "distances") -> da.Array:
        """Return the labels as a Dask array on the workers, one chunk per rank; no labels move.

        The array is striped: chunk ``r`` holds vertices ``r, r + p, r + 2p, ...``, so that vertex ``v`` is element
        ``v // p`` of chunk ``v % p``. In a graph loaded with ``order="degree"`` the stripe holds positions
        (``graph.order.position``) instead of vertices, and predecessors are positions as well.

        Args:
            label: ``distances`` (int32) or ``predecessors`` (int64).

        Raises:
            InvalidOptionError: the label is neither, or the run did not record predecessors.
            ResultReleasedError, LabelsLostError: see ``distances``.
        """
        import dask
        import dask.array as da

        if label not in ("distances", "predecessors"):
            raise InvalidOptionError(f"unknown label {label!r}; choose distances or predecessors")
        if label == "predecessors":
            self._require_predecessors()
        labels = self.published_labels()
        futures, dtype = (
            (labels.distances, self.distance_type) if label == "distances" else (labels.predecessors, np.int64)
        )
        assert futures is not None
        chunks = [
            da.from_delayed(dask.delayed(future), (self.graph.stripe.owned(rank),), dtype=dtype)
            for rank, future in enumerate(futures)
        ]
        return da.concatenate(chunks)

    @bounded()
    def path_to(self, target: Any) -> list[Any]:
        """Return the ids of a shortest path from a source to ``target``, an id, both included; empty if unreached.

        Raises:
            InvalidOptionError: the run did not record predecessors.
            InvalidVertexError: the graph has no such id.
            InvalidVertexTypeError: ``target`` is not of the type of the graph's ids.
            ResultReleasedError, LabelsLostError: see ``distances``.
        """
        self._require_predecessors()
        return self.graph.python_ids(self.vertices_to(self.graph.vertex(target)))

    def vertices_to(self, at: int) -> list[int]:
        """Return the vertices of a path to a vertex."""
        reader = self.reader()
        if self._path_parents is None:
            walked = reader.path(self.graph.numbering.positions([at])[0])
            if walked is not None:
                return self.graph.numbering.vertices_at(walked[::-1])
            self._path_parents = reader.whole("predecessors")
        parents = self._path_parents
        if parents[at] < 0:
            return []
        path = [at]
        while parents[at] != at:
            at = int(parents[at])
            path.append(at)
        return path[::-1]

    @bounded()
    def to_arrow(self, *, unreached: bool = False) -> pa.Table:
        """Return the labels as an Arrow table, by ascending ``vertex``.

        Columns: ``vertex`` (the id), ``distance`` (int32) and, if the run recorded predecessors, ``predecessor`` (the
        id; null for a source). Only the labels of these vertices travel to the client.

        Args:
            unreached: whether unreached vertices have rows too, with null as distance and predecessor.

        Errors as for ``distances``.
        """
        graph = self.graph
        vertices, distances, parents = self.reader().labels_between(
            -1 if unreached else 0, self.depth, predecessors=self.spec.predecessors
        )
        ids = graph.ids_of(vertices)
        predecessors = None
        if parents is not None:
            parents[parents == vertices] = NO_PREDECESSOR
            # A predecessor is reached as well, so that its id is among those fetched.
            predecessors = taken(ids, places_of(parents, vertices, graph.n))
        return label_table(ids, distances, predecessors, unreached=unreached)

    @bounded()
    def to_pandas(self, *, unreached: bool = False) -> pd.DataFrame:
        """Return the labels as a pandas DataFrame with the rows and columns of ``to_arrow``.

        Columns of integers with nulls have pandas' type ``Int64`` (``Int32`` for distances with ``unreached``). Ids of
        several columns are tuples. Arguments and errors as for ``to_arrow``.
        """
        return data_frame(self.to_arrow(unreached=unreached))

    @bounded()
    def to_polars(self, *, unreached: bool = False) -> pl.DataFrame:
        """Return the labels as a Polars DataFrame with the rows and columns of ``to_arrow``; tuples are structs.

        Raises:
            MissingPackageError: Polars is not installed. Other errors, and the argument, as for ``to_arrow``.
        """
        return polars_frame(self.to_arrow(unreached=unreached))

    @bounded()
    def to_dict(self) -> dict[Any, int]:
        """Return the distance of each reached vertex by its id, ids ascending. Errors as for ``distances``."""
        vertices, distances, _ = self.reader().labels_between(0, self.depth, predecessors=False)
        return dict(zip(self.graph.ids_of(vertices).tolist(), distances.tolist(), strict=True))

    @bounded()
    def to_dask_dataframe(self, *, unreached: bool = False) -> dd.DataFrame:
        """Return the labels as a Dask DataFrame with the columns of ``to_pandas``; no label passes the client.

        Partition ``r`` has rank ``r``'s own vertices, ascending. The workers keep the partitions as Arrow tables for as
        long as the DataFrame exists: about 20 bytes a row, if ids are integers. Arguments and errors as for
        ``to_arrow``.

        Errors as for ``Graph.bfs``.
        """
        return tables.dask_dataframe(
            self.graph, self.run_id, self.published_labels(), self.distance_type, unreached=unreached
        )

    @bounded()
    def to_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        unreached: bool = False,
        compression: str = "snappy",
    ) -> None:
        """Write the labels as Parquet files into a folder, one from each rank; no label passes the client.

        File ``part-R.parquet`` has rank ``R``'s own vertices, ascending, with the columns of ``to_arrow``. Files appear
        when all are complete. After an error none is left.

        Args:
            path: the folder, on a disk that all workers see, or a URL that fsspec writes (``s3://...``). It is made if
                needed, and must be empty. Workers of a cluster that this program did not start write only below the
                folders in ``dbfs.write.folders``.
            unreached: as of ``to_arrow``.
            compression: a compression of Parquet: ``snappy``, ``zstd``, ``lz4``, ``gzip``, ``brotli`` or ``none``.

        Raises:
            OutputError: the folder is not empty, or can't be written.
            InvalidOptionError: the compression is unknown, or the configuration does not allow the folder.
            WorkerLostError, DeadlineExceededError: see ``Graph.bfs``.
            ResultReleasedError: see ``distances``.
        """
        tables.write_parquet(self.graph, self.published_labels, path, unreached=unreached, compression=compression)

    @bounded()
    def vertices_at(self, distance: int) -> CallerIds:
        """Return the ids at a distance, ascending, as ``Graph.ids_of`` does; none beyond ``depth``.

        Only these ids travel to the client.

        Raises:
            InvalidOptionError: the distance is below 0.
            InvalidOptionTypeError: the distance is not an integer.
            ResultReleasedError, LabelsLostError: see ``distances``.
        """
        only = whole_count(distance, "distance")
        return self.graph.ids_of(self.vertices_between(only, only))

    @bounded()
    def vertices(self) -> CallerIds:
        """Return the reached ids, ascending, the sources included, as ``vertices_at`` does. Errors as for it."""
        return self.graph.ids_of(self.vertices_between(0, self.depth))

    @bounded()
    def published_labels(self) -> PublishedLabels:
        """Return the labels as Dask data of this client; the first call publishes them. Errors as for ``distances``."""
        self._require_labels()
        if self._labels is None:
            self._labels = self._source.publish()
            self._dropping.detach()
        return self._labels

    @property
    def label_location(self) -> PublishedLabels | KeptLabels:
        """Where the labels are: on the ranks until ``published_labels`` is called, then in Dask's data.

        Errors as for ``distances``.
        """
        self._require_labels()
        return self._labels or self._source.location

    def readable_labels(self) -> PublishedLabels | KeptLabels:
        """Return where the labels are, each rank's on its worker. Errors as for ``distances``."""
        if isinstance(self.label_location, KeptLabels):
            return self.label_location
        self._labels = on_ranks(self.graph.gang, self.published_labels(), self.run_id)
        return self._labels

    def _require_labels(self) -> None:
        """Check that the labels were not released, nor lost with a worker."""
        if self._released:
            raise ResultReleasedError("the labels of this result were released")
        if self.graph.record.graph_id != self._graph_id:
            raise self.lost(f"{self.graph.name} was built again since")

    def lost(self, why: object) -> LabelsLostError:
        """Return the error for labels that are lost."""
        return LabelsLostError(f"the labels of run {self.run_id} are lost: {why}; traverse again")

    @bounded()
    def publish(self) -> None:
        """Make the labels Dask data of this client, so that they outlive the graph."""
        if self._dropping.alive:
            self.published_labels()

    def release(self) -> None:
        """Free the labels on the workers; counts and level reports stay available."""
        if self._labels is not None:
            self._labels.drop()
        self._dropping()
        self._labels = None
        self._path_parents = None
        self._released = True

    def summary(self) -> dict[str, Any]:
        """Return the counts and the levels as plain values, for JSON."""
        graph = self.graph
        return {
            "graph": graph.name,
            "n": graph.n,
            "m": graph.m,
            "ranks": graph.ranks,
            "engine": self.engine,
            "backend": graph.backend,
            "exchange": graph.exchange if self.engine == "resident" else "dask",
            "sources": list(self.sources),
            **{name: getattr(self, name) for name in ("reached", "depth", "edges", "seconds", "mteps")},
            "levels": self.levels.reset_index().to_dict(orient="records"),
        }

    def __repr__(self) -> str:
        sources = ", ".join(map(str, self.sources[:3])) + (", ..." if len(self.sources) > 3 else "")
        return (
            f"<dbfs.BFSResult of {self.graph.name} from {sources}: {self.reached:,} of {self.graph.n:,} reached, "
            f"depth {self.depth:,}, {format_seconds(self.seconds)}, {format_rate(self.mteps)} ({self.engine})>"
        )

    def _card(self) -> Card:
        graph, reports, sources = self.graph, self.reports, self.sources
        levels = sum(report.levels for report in reports)
        bottom_up = sum(report.levels for report in reports if report.direction == "bottom-up")
        # Of a report of both directions the number is not known.
        some = any(report.direction == "both" for report in reports)
        shaded = f", {bottom_up:,} of them bottom-up (shaded)" if bottom_up else ""
        on = f" on {graph.backend} by {graph.exchange}" if self.engine == "resident" else ""
        share = f"{100 * self.reached / graph.n:.3g} %"
        facts = {
            "Source" if len(sources) == 1 else "Sources": first_ids(sources),
            "Reached": f"{self.reached:,} of {counted(graph.n, 'vertex', 'vertices')} ({share})",
            "Depth": f"{self.depth:,}",
            "Edges": f"{self.edges:,} directed in the traversed component",
            "Time": format_seconds(self.seconds),
            "Rate": f"{format_rate(self.mteps)} (directed edges)",
            "Levels": f"{levels:,}{', some of them bottom-up' if some else shaded}",
            "Engine": f"{self.engine}, {counted(graph.ranks, 'rank')}{on}",
        }
        return Card(graph.name, facts)

    def _require_predecessors(self) -> None:
        if not self.spec.predecessors:
            raise InvalidOptionError("this run recorded no predecessors; run bfs(..., predecessors=True)")

    def reader(self) -> LabelReader:
        """Return the object that reads the labels."""
        graph = self.graph
        return LabelReader(graph, self.readable_labels(), self.run_id, self.depth)

    def vertices_between(self, least: int, most: int) -> NDArray[np.int64]:
        """Return the vertices, 0..n-1, at a distance of ``least`` to ``most``, ascending."""
        return self.reader().between(least, most)
