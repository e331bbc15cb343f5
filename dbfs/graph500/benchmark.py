"""The Graph500 benchmark (specification 2.0), as Krajecki, Loiseau, Alin and Jaillet ("BFS Traversal on Multi-GPU
Cluster", 2016) ran it: generate, build (kernel 1), search from random keys (kernel 2), validate each search. On demand
it finds the shortest paths from the same keys by weight (kernel 3), as the reference code (version 3) does.

The client's clock measures:

- generation: until the generated edges are on the workers, as arrays of vertex ids;
- construction: from there until the graph can be traversed, including its numbering by degree and forming its gang;
- a search: the call ``graph.bfs(key, predecessors=True)``, from before the key is visited until every rank has its part
  of the predecessors, 4 bytes per vertex, in its memory. Fetching them is not included;
- a validation: the call ``dbfs.validate`` on the search's result, against the generated edges;
- shortest paths: the call ``graph.sssp(key, weight, predecessors=True)``, as a search, with the weights of the
  reference code, on CPU cores or on one GPU; their validation: the call ``SSSPResult.validate``.

Before the measurement a small graph goes through all steps, so that every rank has loaded its code. Otherwise the first
calls would include seconds of importing and compiling. The first key is searched once before the measurement, as in the
reference code, because that search allocates the memory that later searches reuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import dask
import distributed

from dbfs.assembly import Graph, load
from dbfs.base import progress as progresses
from dbfs.base.calls import public
from dbfs.base.integers import whole_count
from dbfs.base.units import format_seconds
from dbfs.building.build import BuildOptions, check_fit
from dbfs.cluster.awaiting import awaitable, unchanged
from dbfs.cluster.connect import current_client, roster
from dbfs.cluster.gang import Gang
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import kronecker
from dbfs.errors import GraphTooLargeError, InvalidOptionError, ValidationError
from dbfs.features.validation.validate import validate
from dbfs.graph.load import choose_backend
from dbfs.graph.result import BFSResult
from dbfs.graph500.output import block, statistics
from dbfs.service.client import ServiceClient

EDGEFACTOR = 16
ROOTS = 64

_WEIGHT = "weight"
_SETTLE_SECONDS = 0.02
_WAKING_CALLS = 3
_WARM_UP_SCALE = 10

R = TypeVar("R", bound=BFSResult)
T = TypeVar("T")


@dataclass(frozen=True)
class Search:
    """One search.

    Attributes:
        key: vertex id of the source.
        seconds: time of the search.
        edges: number of input edges within the traversed component, with duplicates, without self-loops.
        validation_seconds: time of the validation.
    """

    key: int
    seconds: float
    edges: int
    validation_seconds: float


@public
@dataclass(frozen=True)
class Graph500Result:
    """Result of a benchmark whose searches were all valid. ``str`` returns the benchmark's output.

    Attributes:
        scale: the graph has 2^scale vertices.
        edgefactor: number of input edges divided by the number of vertices.
        ranks: number of ranks (Graph500's ``num_mpi_processes``).
        backend: backend of the ranks: ``cpu`` or ``cuda``.
        exchange: exchange of the ranks, as ``graph.exchange``.
        order: numbering of the vertices inside: ``degree`` or ``given``.
        generation_seconds, construction_seconds: see the module.
        searches: the searches in the order in which they ran.
        shortest_paths: the same of kernel 3; empty if it did not run.
    """

    scale: int
    edgefactor: int
    ranks: int
    backend: str
    exchange: str
    order: str
    generation_seconds: float
    construction_seconds: float
    searches: tuple[Search, ...]
    shortest_paths: tuple[Search, ...] = ()

    @property
    def _by_kernel(self) -> dict[str, tuple[Search, ...]]:
        return {"bfs": self.searches} | ({"sssp": self.shortest_paths} if self.shortest_paths else {})

    @property
    def statistics(self) -> dict[str, float]:
        """Results by the benchmark's names, in its order; times in seconds, TEPS in edges per second."""
        return {
            "SCALE": self.scale,
            "edgefactor": self.edgefactor,
            "NBFS": len(self.searches),
            "graph_generation": self.generation_seconds,
            "num_mpi_processes": self.ranks,
            "construction_time": self.construction_seconds,
            **statistics(
                {kernel: [search.seconds for search in made] for kernel, made in self._by_kernel.items()},
                [search.edges for search in self.searches],
                {kernel: [search.validation_seconds for search in made] for kernel, made in self._by_kernel.items()},
            ),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return statistics and searches as plain values, for JSON.

        A key of ``statistics`` is the benchmark's name as one word: ``bfs_median_TEPS`` for ``bfs  median_TEPS``.
        """
        return {
            "statistics": {"_".join(name.split()): value for name, value in self.statistics.items()},
            "backend": self.backend,
            "exchange": self.exchange,
            "order": self.order,
            "searches": [vars(search) for search in self.searches],
            "shortest_paths": [vars(search) for search in self.shortest_paths],
        }

    def __str__(self) -> str:
        return block(self.statistics)


@public
@awaitable(unchanged)
def graph500(
    scale: int,
    *,
    edgefactor: int = EDGEFACTOR,
    roots: int = ROOTS,
    client: distributed.Client | None = None,
    ranks: int | None = None,
    backend: str = "auto",
    order: str = "degree",
    sssp: bool = False,
    progress: bool | None = None,
) -> Graph500Result:
    """Run the benchmark.

    Args:
        scale: logarithm to base 2 of the number of vertices.
        edgefactor: edges per vertex; the specification requires 16.
        roots: number of search keys, which are distinct vertices of degree at least 1; the specification requires 64.
        client: any ``distributed.Client``; Dask's current one if None.
        ranks: number of workers that take part, one rank each; all if None.
        backend: see ``load``.
        order: ``degree`` to number the vertices by falling degree inside, as part of the construction: searches take
            less time. ``given`` to keep the generator's numbering.
        sssp: also run kernel 3, shortest paths by weight, from the same keys. With several ranks ``auto`` is ``cpu``.
        progress: whether to show bars for the phases and the searches: see ``dbfs.progress``.

    Raises:
        ValidationError: a search broke a rule. The message names the rule, vertices that show the fault, and ranks. The
            benchmark ends there.
        InvalidOptionError: scale, edge factor or roots are out of range, or fewer vertices than roots have a neighbour.
        InvalidOptionTypeError: ``roots`` or ``ranks`` is not an integer.
        GraphTooLargeError: the graph does not fit. The message has the bytes needed, the bytes available and the
            largest scale that fits.
        ClientError, NoWorkersError, WorkerLostError, BackendUnavailableError, DeadlineExceededError: see ``load``.
    """
    columns = [f"{_WEIGHT}=graph500"] if sssp else []

    def edges_of(scale: int) -> EdgeList:
        edges = kronecker(scale, edgefactor)
        return edges.keeping(columns) if columns else edges

    edges = edges_of(scale)
    if whole_count(roots, "roots") == 0:
        raise InvalidOptionError("roots must be at least 1, not 0")
    client = current_client(client)
    ServiceClient.of(client)
    gang = Gang(client, roster(client, ranks))
    # Several GPUs are slower by weight than one, or leave the rounds to a CPU core each.
    backend = choose_backend(gang, "cpu" if sssp and backend == "auto" and gang.p > 1 else backend)
    _require_fit(edges_of, scale, gang, backend, order)
    options: dict[str, Any] = {"order": order, "keep_edges": True, "backend": backend, "edge_columns": columns}
    with progresses.bar("loading code", progress=progress):
        _warm_up(gang, options, sssp=sssp)
    start = time.perf_counter()
    with load(edges, client=client, ranks=ranks, progress=progress, **options) as graph:
        construction = time.perf_counter() - start - graph.read_seconds
        keys = graph.sample_sources(roots)
        first = _search(graph, keys[0], "the search before the first")
        searches = _each("searching", keys, progress, lambda key, what: _search(graph, key, what))
        shortest: list[Search] = []
        if sssp:
            _weigh(graph, first, "the search before the first")
            found = {search.key: search for search in searches}
            shortest = _each("weighing", keys, progress, lambda key, what: _weigh(graph, found[key], what))
        return Graph500Result(
            scale=scale,
            edgefactor=edgefactor,
            ranks=graph.ranks,
            backend=graph.backend,
            exchange=graph.exchange,
            order=order,
            generation_seconds=graph.read_seconds,
            construction_seconds=construction,
            searches=tuple(searches),
            shortest_paths=tuple(shortest),
        )


def _warm_up(gang: Gang, options: dict[str, Any], *, sssp: bool) -> None:
    """Run every step once on a small graph, so that every rank has loaded its code."""
    edges = kronecker(_WARM_UP_SCALE)
    assert edges.m is not None
    with (
        # One piece for each rank, so that every rank reads.
        dask.config.set({"dbfs.build.piece-edges": -(-edges.m // gang.p)}),
        load(edges, client=gang.client, ranks=gang.p, progress=False, **options) as graph,
    ):
        search = _search(graph, graph.sample_sources(1)[0], "warm-up")
        if sssp:
            _weigh(graph, search, "warm-up")


def _each(words: str, keys: Sequence[int], progress: bool | None, search: Callable[[int, str], Search]) -> list[Search]:
    """Search from each key, and show how far that is."""
    made: list[Search] = []
    with progresses.bar(words, len(keys), progress) as shown:
        for index, key in enumerate(keys, 1):
            made.append(search(key, f"search {index} of {len(keys)}"))
            shown.set(index, f"{index:,} of {len(keys):,}, the last in {format_seconds(made[-1].seconds)}")
    return made


def _search(graph: Graph, key: int, what: str) -> Search:
    """Search from one key and validate the result; ``what`` names the search in an error."""
    seconds, validation, found = _measured(
        graph, key, what, lambda: graph.bfs(key, predecessors=True, progress=False), lambda made: validate(graph, made)
    )
    return Search(key, seconds, found.component_edges, validation)


def _weigh(graph: Graph, search: Search, what: str) -> Search:
    """Find the shortest paths by weight from the key of a search, and validate the result."""
    seconds, validation, _ = _measured(
        graph,
        search.key,
        f"shortest paths, {what}",
        lambda: graph.sssp(search.key, _WEIGHT, predecessors=True, progress=False),
        lambda made: made.validate(),
    )
    return replace(search, seconds=seconds, validation_seconds=validation)


def _measured(
    graph: Graph, key: int, what: str, traverse: Callable[[], R], check: Callable[[R], T]
) -> tuple[float, float, T]:
    """Return the seconds of a traversal and of its check, and what the check returns."""
    # The cores of all ranks have slept since the last search. In the reference code, whose ranks wait in a barrier of
    # MPI, the cores are awake when a search begins. A traversal of depth 0 visits the key only.
    for _ in range(_WAKING_CALLS):
        graph.bfs(key, predecessors=True, max_depth=0, progress=False).release()
    start = time.perf_counter()
    result = traverse()
    searched = time.perf_counter()
    try:
        found = check(result)
    except ValidationError as error:
        raise ValidationError(f"{what}, from {key}: {error}") from error
    validated = time.perf_counter()
    result.release()
    # The workers free the tasks of the validation meanwhile. Their event loops would slow the next search down.
    time.sleep(_SETTLE_SECONDS)
    return searched - start, validated - searched, found


def _require_fit(edges_of: Callable[[int], EdgeList], scale: int, gang: Gang, backend: str, order: str) -> None:
    """Raise ``GraphTooLargeError`` if the graph does not fit; its message names the largest scale that does."""
    options = BuildOptions(order=order, keep_edges=True)

    def check(edges: EdgeList) -> None:
        assert edges.n is not None and edges.m is not None
        check_fit(edges, edges.n, edges.m, gang, options, backend)

    try:
        check(edges_of(scale))
    except GraphTooLargeError as error:
        for smaller in range(scale - 1, 0, -1):
            try:
                check(edges_of(smaller))
            except GraphTooLargeError:
                continue
            raise GraphTooLargeError(f"{error}. The largest scale that would fit is {smaller}") from error
        raise GraphTooLargeError(f"{error}. No scale would fit") from error
