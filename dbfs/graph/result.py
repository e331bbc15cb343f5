"""BFSResult: what a traversal found. Its labels stay striped on the workers until they are asked for."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs import config
from dbfs.cluster.gang import Deadline, Ref
from dbfs.engines import LabelsOnRanks, LevelReport, Outcome, PublishedLabels
from dbfs.errors import InvalidOptionError, ResultReleasedError
from dbfs.graph.vertices import vertices_of_rows
from dbfs.integers import whole_count
from dbfs.validation.validate import validate
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.tasks import queries

if TYPE_CHECKING:
    import dask.array as da
    import pandas as pd
    import scipy.sparse
    from matplotlib.axes import Axes

    from dbfs.graph.graph import Graph


class BFSResult:
    """The outcome of ``Graph.bfs``.

    Attributes:
        graph: the graph that was traversed.
        sources: vertex ids at distance 0.
        run_id: names the run.
        engine: the engine that ran.
        spec: what was asked for; its vertices are positions in a graph that is ordered by degree.
        depth: the largest distance.
        seconds: from the start of the first level to the end of the last.
        setup_seconds: before that, clearing the state and (on CPUs) waiting for the slowest rank; None of a
            taskgraph run, where it is not told apart.
    """

    def __init__(
        self, graph: Graph, sources: tuple[int, ...], spec: TraversalSpec, engine: str, outcome: Outcome
    ) -> None:
        self.graph = graph
        self.sources = sources
        self.run_id = spec.run_id
        self.engine = engine
        self.spec = spec
        self.seconds = outcome.seconds
        self.setup_seconds = outcome.setup_seconds
        self._source = outcome.labels
        self._labels: PublishedLabels | None = None
        # Labels that nobody asked for are dropped with the last reference; those that are held, when they are let go.
        self._dropping = weakref.finalize(self, outcome.labels.drop)
        self._dropping.atexit = False
        self.depth = outcome.depth
        self._make_reports = outcome.levels
        # Kept from the first path on: paths are asked for by the dozen, and each would fetch n labels.
        self._path_parents: NDArray[np.int64] | None = None
        self._released = False
        self._counts = (outcome.reached, outcome.edges)

    @property
    def reached(self) -> int:
        """Vertices reached, the sources included."""
        return self._counts[0]

    @property
    def edges(self) -> int:
        """Directed edges of the traversed component (Merrill's count): the degrees of the reached vertices."""
        return self._counts[1]

    @property
    def farthest(self) -> int | None:
        """The distance past which vertices were left unreached; None where all within reach were reached."""
        # A run that ends because nothing is left has a last level that discovers nothing.
        if self.spec.targets and (not self.reports or self.reports[-1].discovered):
            return self.depth
        return self.spec.max_depth

    @property
    def mteps(self) -> float:
        """Directed edges of the traversed component a second, in millions."""
        return self.edges / self.seconds / 1e6 if self.seconds else 0.0

    @functools.cached_property
    def reports(self) -> tuple[LevelReport, ...]:
        """One report a level."""
        return self._make_reports()

    @property
    def levels(self) -> pd.DataFrame:
        """One row a level: the columns of ``LevelReport``, times in seconds, sizes in bytes."""
        import pandas as pd

        columns = [name for name in LevelReport.__dataclass_fields__ if name != "phase_seconds"]
        rows = [[getattr(report, name) for name in columns] for report in self.reports]
        return pd.DataFrame(rows, columns=pd.Index(columns)).set_index("level")

    def distances(self) -> NDArray[np.int32]:
        """int32[n] in vertex order: edges on a shortest path from the nearest source, -1 where there is none.

        Raises:
            ResultReleasedError: the result was released.
            WorkerLostError: a worker that held labels is gone.
        """
        by_position = self._gathered(self.published_labels().distances, np.dtype(np.int32))
        order = self.graph.order
        return by_position if order is None else order.by_vertex(by_position)

    def predecessors(self) -> NDArray[np.int64]:
        """int64[n] in vertex order: the vertex before on a shortest path, -1 unreached; a source is its own.

        Raises:
            InvalidOptionError: the run did not record them.
            ResultReleasedError, WorkerLostError: see ``distances``.
        """
        by_position = self._gathered(self._parents(), np.dtype(np.int64))
        order = self.graph.order
        return by_position if order is None else order.predecessors_by_vertex(by_position)

    def to_dask_array(self, label: str = "distances") -> da.Array:
        """The labels as they lie on the workers: one chunk a rank that has vertices, nothing moved.

        Still striped: chunk ``r`` holds vertices ``r, r + p, r + 2p, ...``, so that vertex ``v`` is element
        ``v // p`` of chunk ``v % p``. In a graph loaded with ``order="degree"`` the stripe holds positions instead
        (``graph.order.position``), and predecessors are positions, too.

        Args:
            label: ``distances`` (int32) or ``predecessors`` (int64).
        """
        import dask
        import dask.array as da

        if label not in ("distances", "predecessors"):
            raise InvalidOptionError(f"unknown label {label!r}; choose distances or predecessors")
        futures, dtype = (
            (self.published_labels().distances, np.int32) if label == "distances" else (self._parents(), np.int64)
        )
        chunks = [
            da.from_delayed(dask.delayed(future), (self.graph.stripe.owned(rank),), dtype=dtype)
            for rank, future in enumerate(futures)
        ]
        return da.concatenate(chunks)

    def path_to(self, vertex: int) -> list[int]:
        """Vertex ids of a shortest path from a source to ``vertex``, both included; empty where it was not reached.

        Raises:
            InvalidOptionError: the run did not record predecessors.
            InvalidVertexError, InvalidVertexTypeError: not a vertex id.
        """
        at = self.graph.check_vertex(vertex)
        if self._path_parents is None:
            self._path_parents = self.predecessors()
        parents = self._path_parents
        if parents[at] < 0:
            return []
        path = [at]
        while parents[at] != at:
            at = int(parents[at])
            path.append(at)
        return path[::-1]

    def tree(self) -> scipy.sparse.csr_array:
        """The tree of predecessors as a sparse matrix of int8, n x n: 1 at (predecessor, vertex).

        A source has no entry of its own, so that there are ``reached`` less the sources; of several sources each is the
        root of a tree. ``scipy.sparse.csgraph.breadth_first_tree`` gives the same form.

        Raises:
            InvalidOptionError: the run did not record predecessors.
            ResultReleasedError, WorkerLostError: see ``distances``.
        """
        import scipy.sparse

        parents = self.predecessors()
        children = np.flatnonzero((parents >= 0) & (parents != np.arange(parents.size)))
        ones = np.ones(children.size, np.int8)
        shape = (self.graph.n, self.graph.n)
        return scipy.sparse.coo_array((ones, (parents[children], children)), shape=shape).tocsr()

    def vertices_at(self, distance: int) -> NDArray[np.int64]:
        """int64, the vertices at a distance, ascending; none past ``depth``. Only they come from the workers.

        Raises:
            InvalidOptionError: the distance is below 0.
            InvalidOptionTypeError: it is not an integer.
            ResultReleasedError, WorkerLostError: see ``distances``.
        """
        wanted = whole_count(distance, "distance")
        return self._vertices_between(wanted, wanted)

    def vertices(self) -> NDArray[np.int64]:
        """int64, the vertices reached, ascending; the sources are among them. Errors as for ``distances``."""
        return self._vertices_between(0, self.depth)

    def plot_frontier(self, ax: Axes | None = None) -> Axes:
        """Plot the vertex frontier and the edge frontier by level, on a logarithmic scale (Merrill 2012, figure 3).

        The vertex frontier are the vertices expanded, the edge frontier the edges that were looked at for them. Levels
        that ran bottom-up are shaded: the edges are those looked at from unvisited vertices, not the frontier's own;
        ``bfs(..., direction="top-down")`` gives the frontier's in every level.

        Args:
            ax: where to draw; None for a figure of its own.

        Raises:
            MissingPackageError: matplotlib is not installed.
        """
        from dbfs.display.plots import plot_frontier

        return plot_frontier(self, ax)

    def plot_levels(self, ax: Axes | None = None) -> Axes:
        """Plot when each rank did what, level by level, so that imbalance and waiting show.

        The axis is wall time, a row a rank, coloured by phase; blank is time outside of the phases (in the taskgraph
        engine, Dask's). Bottom-up levels have a strip on the upper edge. More than 32 levels are drawn in so many
        stretches. Arguments and errors as for ``plot_frontier``.
        """
        from dbfs.display.plots import plot_levels

        return plot_levels(self, ax)

    def validate(self) -> None:
        """Check the labels on the workers: see ``dbfs.validate``, which tells what was checked, too."""
        validate(self.graph, self)

    def published_labels(self) -> PublishedLabels:
        """The labels where they lie, as Dask data of this client.

        Raises:
            ResultReleasedError: the result was released, or the graph was unloaded from elsewhere.
            GraphNotFoundError, WorkerLostError: they are gone.
        """
        if self._released:
            raise ResultReleasedError("the labels of this result were released")
        if self._labels is None:
            self._labels = self._source.publish()
            self._dropping.detach()
        return self._labels

    @property
    def label_location(self) -> PublishedLabels | LabelsOnRanks:
        """Where the labels are: with the ranks until they are asked for, then as Dask data.

        Raises:
            ResultReleasedError: the result was released.
        """
        if self._released:
            raise ResultReleasedError("the labels of this result were released")
        return self._labels or self._source.location

    def publish(self) -> None:
        """Make the labels Dask data of this client now, so that they outlive the graph."""
        if self._dropping.alive:
            self.published_labels()

    def release(self) -> None:
        """Free the labels on the workers; counts and level reports stay."""
        if self._labels is not None:
            self._labels.release()
        self._dropping()
        self._labels = None
        self._path_parents = None
        self._released = True

    def to_dict(self) -> dict[str, Any]:
        """The counts and the levels, ready for JSON."""
        return {
            "graph": self.graph.name,
            "n": self.graph.n,
            "m": self.graph.m,
            "ranks": self.graph.ranks,
            "engine": self.engine,
            "backend": self.graph.backend,
            "exchange": self.graph.exchange if self.engine == "resident" else "dask",
            "sources": list(self.sources),
            "reached": self.reached,
            "depth": self.depth,
            "edges": self.edges,
            "seconds": self.seconds,
            "mteps": self.mteps,
            "levels": self.levels.reset_index().to_dict(orient="records"),
        }

    def __repr__(self) -> str:
        sources = ", ".join(map(str, self.sources[:3])) + (", ..." if len(self.sources) > 3 else "")
        return (
            f"<dbfs.BFSResult of {self.graph.name} from {sources}: {self.reached} of {self.graph.n} reached, "
            f"depth {self.depth}, {self.seconds:.3g} s, {self.mteps:.3g} MTEPS ({self.engine})>"
        )

    def _repr_html_(self) -> str:
        from dbfs.display.notebook.html import result_html

        return result_html(self)

    def _parents(self) -> tuple[distributed.Future, ...]:
        parents = self.published_labels().predecessors
        if parents is None:
            raise InvalidOptionError("this run recorded no predecessors; run bfs(..., predecessors=True)")
        return parents

    def _vertices_between(self, least: int, most: int) -> NDArray[np.int64]:
        arguments = [(Ref(future.key), least, most) for future in self.published_labels().distances]
        deadline = Deadline(config.seconds("deadline"))
        doing = f"picking vertices of run {self.run_id}"
        rows = self.graph.gang.on_each_rank("vertices-between", queries.rows_between, arguments, deadline, doing)
        return vertices_of_rows(rows, self.graph.order)

    def _gathered(self, futures: tuple[distributed.Future, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        gang = self.graph.gang
        parts = gang.gather(futures, Deadline(config.seconds("deadline")), f"fetching labels of run {self.run_id}")
        whole = np.empty(self.graph.n, dtype)
        for rank, part in enumerate(parts):
            whole[rank :: gang.p] = part
        return whole
