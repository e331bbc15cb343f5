"""Graph: a striped graph that lives on a gang of workers, and is traversed there."""

from __future__ import annotations

import operator
import os
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import distributed
import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from dbfs import config, engines, generate, readers
from dbfs.build import Built, build
from dbfs.cluster import current_client, roster
from dbfs.edges import EdgeList
from dbfs.engines import Progress
from dbfs.errors import (
    EdgeInputError,
    InvalidOptionError,
    InvalidVertexError,
    InvalidVertexTypeError,
    ResultReleasedError,
)
from dbfs.gang import Deadline, Gang, release
from dbfs.result import BFSResult
from dbfs.sampling import sample_sources
from dbfs_workers import backends
from dbfs_workers.stripe import Stripe
from dbfs_workers.traversal import RunSpec


def load(
    edges: EdgeList | str | os.PathLike[str],
    *,
    client: distributed.Client | None = None,
    ranks: int | None = None,
    directed: bool | None = None,
    format: str | None = None,  # noqa: A002 - the word users expect
) -> Graph:
    """Build a graph on a cluster's workers.

    Args:
        edges: an edge list (``dbfs.kronecker(...)``, ``dbfs.from_arrays(...)``), a file, or a generator's spec such as
            ``kronecker:scale=18``.
        client: any synchronous ``distributed.Client``; Dask's current one if None.
        ranks: how many workers take part, one rank each; all if None.
        directed: of a file, overrides what its format or header says.
        format: of a file, overrides the guess from its name and header.

    Raises:
        ClientError, NoWorkersError: there is no usable client, or not enough workers.
        FormatError, TruncatedFileError, MissingFileError: the file can't be read.
        GraphTooLargeError: the graph won't fit the workers.
        InvalidOptionError: an option's value is not one of its choices.
    """
    client = current_client(client)
    if isinstance(edges, EdgeList):
        if directed is not None or format is not None:
            raise InvalidOptionError("directed= and format= are for files; an edge list has them already")
    elif isinstance(edges, str) and generate.is_spec(edges):
        if format is not None:
            raise InvalidOptionError(f"format= is for files; {edges} is a generator")
        edges = generate.parse(edges)
        if directed is not None and directed != edges.directed:
            raise InvalidOptionError(
                f"{edges.name} is {'' if edges.directed else 'un'}directed; directed= is for files"
            )
    elif isinstance(edges, str | os.PathLike):
        edges = readers.open_edges(edges, format=format, directed=directed)
    else:
        raise EdgeInputError(f"load takes an edge list, a path or a generator's spec, not {type(edges).__name__}")
    gang = Gang(client, roster(client, ranks))
    return Graph(edges.name, edges.directed, gang, build(edges, gang))


class Graph:
    """A graph whose vertices are striped over the workers of a gang. Made by ``dbfs.load``.

    Vertex ids are 0..n-1. Where a file has ids of its own (an edge list with gaps), ``external_ids`` has them in order:
    vertex ``v`` is ``external_ids[v]``, and ``vertex(external_id)`` is the way back.

    Attributes:
        name: where the edges came from.
        directed: whether edges hold in one direction only.
        build_seconds: how long reading and building took.
    """

    def __init__(self, name: str, directed: bool, gang: Gang, built: Built) -> None:
        self.name = name
        self.directed = directed
        self.build_seconds = built.seconds
        self._gang = gang
        self._built: Built | None = built
        self._stripe = built.stripe
        self._infos = built.infos
        self._external: NDArray[np.int64] | None = None

    @property
    def n(self) -> int:
        """Number of vertices."""
        return self._stripe.n

    @property
    def m(self) -> int:
        """Directed edges stored: an undirected edge counts twice (a self-loop once), duplicates included."""
        return sum(info.m_local for info in self._infos)

    @property
    def input_edges(self) -> int:
        """Edges read, as the file or generator lists them."""
        return self._infos[0].input_edges

    @property
    def self_loops(self) -> int:
        """Edges from a vertex to itself, duplicates included."""
        return sum(info.self_loops for info in self._infos)

    @property
    def duplicates(self) -> int:
        """Directed edges that repeat another: ``m - duplicates`` are distinct."""
        return sum(info.duplicates for info in self._infos)

    @property
    def max_degree(self) -> int:
        """The largest number of edges stored at a vertex."""
        return max(info.max_degree for info in self._infos)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of each rank's partition."""
        return tuple(info.nbytes for info in self._infos)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self._gang.p

    @property
    def stripe(self) -> Stripe:
        """How vertices lie on the ranks."""
        return self._stripe

    @property
    def gang(self) -> Gang:
        """The workers that hold the graph."""
        return self._gang

    @property
    def partitions(self) -> tuple[distributed.Future, ...]:
        """Futures of the ranks' partitions, to compute with them on their workers.

        Raises:
            ResultReleasedError: the graph was unloaded.
        """
        return self._loaded().partitions

    @property
    def external_ids(self) -> NDArray[np.int64] | None:
        """int64[n], the file's own ids by vertex, ascending; None where they are the vertex ids."""
        future = self._loaded().external_ids
        if future is not None and self._external is None:
            deadline = Deadline(config.seconds("deadline"))
            self._external = self._gang.gather([future], deadline, f"external ids of {self.name}")[0][0]
        return self._external

    def vertex(self, external_id: int) -> int:
        """The vertex of a file's own id.

        Raises:
            InvalidVertexError: the id does not occur in the graph.
        """
        wanted = _whole_number(external_id, "external id")
        ids = self.external_ids
        if ids is None:
            return self.check_vertex(external_id, "external id")
        at = int(np.searchsorted(ids, wanted))
        if at == ids.size or ids[at] != wanted:
            raise InvalidVertexError(f"{self.name} has no vertex with the id {wanted}")
        return at

    def check_vertex(self, value: Any, what: str = "vertex") -> int:
        """The vertex id as an int.

        Raises:
            InvalidVertexError: outside 0..n-1.
            InvalidVertexTypeError: not an integer (a float, a bool).
        """
        vertex = _whole_number(value, what)
        if not 0 <= vertex < self.n:
            there = f"vertices are 0..{self.n - 1}" if self.n else "the graph has no vertices"
            raise InvalidVertexError(f"{what} {vertex} is not in {self.name}: {there}")
        return vertex

    def bfs(
        self,
        source: int | Sequence[int],
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        engine: str = "auto",
        backend: str = "auto",
        validate: bool = False,
        deadline: float | str | None = None,
        progress: Progress | None = None,
    ) -> BFSResult:
        """Breadth-first search from a vertex, or from several at once (the distance is then to the nearest).

        Args:
            source: vertex id, or several.
            predecessors: record a parent of each vertex beside its distance.
            max_depth: leave vertices farther than this unreached.
            engine: one of ``dbfs.engines.ENGINES``.
            backend: one of ``dbfs_workers.backends.BACKENDS``.
            validate: check the result on the workers before returning it.
            deadline: seconds (or a Dask duration) the run may take; ``dbfs.deadline`` if None.
            progress: called with each finished level and the vertices it discovered.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: a source is not a vertex id.
            InvalidOptionError: an option's value is not one of its choices.
            WorkerLostError, DeadlineExceededError, StaleRunError: the run ended early.
            ValidationError: ``validate`` found the result wrong.
            ResultReleasedError: the graph was unloaded.
        """
        partitions = self._loaded().partitions
        runner = engines.choose(engine)
        if backend not in backends.BACKENDS:
            raise InvalidOptionError(f"unknown backend {backend!r}; choose one of {', '.join(backends.BACKENDS)}")
        if max_depth is not None and _whole_number(max_depth, "max_depth") < 0:
            raise InvalidOptionError(f"max_depth must be at least 0, not {max_depth}")
        sources = self._sources(source)
        limit = Deadline(config.seconds("deadline", deadline))
        self._gang.check()
        spec = RunSpec(uuid.uuid4().hex, sources, predecessors, backend)
        outcome = runner.run(self._gang, partitions, spec, max_depth, limit, progress)
        result = BFSResult(self, spec, runner.name, max_depth, outcome)
        if validate:
            result.validate()
        return result

    def sample_sources(self, count: int, seed: int = 1) -> list[int]:
        """Distinct random vertices of degree at least 1, self-loops not counted; the same for any number of ranks.

        Raises:
            InvalidOptionError: there are fewer than ``count``.
        """
        return sample_sources(self, count, seed)

    def unload(self) -> None:
        """Free the graph's memory on the workers. Results already made keep their labels."""
        if self._built is not None:
            release(self._built.partitions)
            if self._built.external_ids is not None:
                release([self._built.external_ids])
        self._built = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unload()

    def __repr__(self) -> str:
        state = "" if self._built is not None else " (unloaded)"
        return (
            f"<dbfs.Graph {self.name}: {self.n} vertices, {self.m} {'directed' if self.directed else 'undirected'} "
            f"edges stored, {self.ranks} ranks, {format_bytes(sum(self.nbytes))}{state}>"
        )

    def _loaded(self) -> Built:
        if self._built is None:
            raise ResultReleasedError(f"{self.name} was unloaded; load it again")
        return self._built

    def _sources(self, source: int | Sequence[int]) -> tuple[int, ...]:
        if isinstance(source, list | tuple | range | np.ndarray) and np.ndim(source) == 1:
            if len(source) == 0:
                raise InvalidVertexError("bfs needs at least one source")
            return tuple(self.check_vertex(one, "source") for one in source)
        return (self.check_vertex(source, "source"),)


def _whole_number(value: Any, what: str) -> int:
    # A bool is an int to Python, and 1.0 would do as an index to some; neither is meant as a vertex.
    if not isinstance(value, bool | np.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise InvalidVertexTypeError(f"{what} must be an integer, not {value!r} ({type(value).__name__})")
