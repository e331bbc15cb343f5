"""Records of graphs and runs that clients and the scheduler exchange."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dbfs.base.units import format_bytes, format_seconds
from dbfs_workers.base.text import LONGEST_NAME, Identifier, ShownText, printable
from dbfs_workers.building.layout import Layout
from dbfs_workers.ids.table import INTEGERS, IdType
from dbfs_workers.search import backends
from dbfs_workers.search.partition.partition import PartitionInfo
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa

EXCHANGES = ("auto", "cuda_ipc", "nccl", "shared_memory", "tcp")
EXCHANGES_OF = {
    "cpu": ("auto", "shared_memory", "tcp"),
    "cuda": EXCHANGES,
}

BACKENDS = ("auto", *backends.BACKENDS)


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """Return a graph's name for a title: of an absolute path or an address, the file's name only; of that the end."""
    name = name.rstrip("/").rpartition("/")[2] if name.startswith("/") or "://" in name else name
    return name if len(name) <= most else f"…{name[1 - most :]}"


@dataclass(frozen=True)
class GraphIds:
    """How a graph's ids, the caller's words for vertices, map to the vertices 0..n-1.

    Without tables the id of vertex ``v`` is ``v + first_id``. Tables, one on each of the first ranks, hold the ids of
    consecutive vertices in ascending order.

    Attributes:
        first_id: the id of vertex 0, if there are no tables.
        id_type: the type of the ids.
        keys: by rank, Dask keys of the ``ids.table.IdTable``.
        firsts: by rank, the first vertex of the table.
        count: number of ids in the tables. Vertices from there on came later: see ``ids.table.LaterIds``.
        splitters: ascending; table ``r`` has the ids from ``splitters[r - 1]`` on that are below ``splitters[r]``.
    """

    first_id: int = 0
    id_type: IdType = INTEGERS
    keys: tuple[Hashable, ...] = ()
    firsts: tuple[int, ...] = ()
    splitters: tuple[Any, ...] = ()
    count: int = 0

    @property
    def kind(self) -> str:
        """``dense`` (an id is its vertex), ``offset`` (vertex plus ``first_id``) or ``table``."""
        return "table" if self.keys else "offset" if self.first_id else "dense"


class Beside(ABC):
    """What a feature keeps on the ranks beside a graph's partitions. Updates change the data with these.

    Attributes:
        view_of: id of the graph that the graph was made of by a filter; empty if it was loaded.
        edge_keys: by rank, Dask keys of objects whose ``columns_of(partition)`` returns an Arrow table of the
            ``edge_columns``, with a row for each of the partition's edges; empty if there are none. Their
            ``tables_of(partition)`` are that table and one of its in-edges, or None.
        nbytes: by rank, bytes of these; empty if there are none.
        vertex_keys: by rank, Dask keys of objects whose ``table`` is an Arrow table with a row for each vertex; empty
            if there are none.
    """

    view_of: str
    edge_keys: tuple[Hashable, ...]
    nbytes: tuple[int, ...]
    vertex_keys: tuple[Hashable, ...]

    @property
    @abstractmethod
    def keys(self) -> tuple[Hashable, ...]:
        """Dask keys of the data."""

    @property
    @abstractmethod
    def edge_columns(self) -> Sequence[str]:
        """Names of columns of values of the edges."""

    @property
    @abstractmethod
    def edge_schema(self) -> "pa.Schema":
        """The Arrow schema of these, in the types in which the ranks keep them."""

    @property
    @abstractmethod
    def vertex_columns(self) -> "pa.Schema":
        """The Arrow schema of the columns of the vertices."""

    @property
    @abstractmethod
    def changeable(self) -> bool:
        """Whether updates may change the graph."""

    @property
    @abstractmethod
    def fixed_on(self) -> str:
        """Id of the graph that must not change, since this one has its edges and does not follow; empty if none."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What a graph with this data does, as in "it has attributes"."""

    @property
    @abstractmethod
    def why_not(self) -> str:
        """Why the graph's source does not make it again, and what does, in words; empty if the source does."""

    @abstractmethod
    def keys_of(self, rank: int) -> Sequence[Hashable]:
        """Return the keys of a rank's data."""

    @abstractmethod
    def renamed(self, new: Mapping[Hashable, Hashable]) -> "Beside":
        """Return the same with other keys: ``new`` has them by the keys of before, where they differ."""

    @abstractmethod
    def changed(self, facts: Sequence[Sequence[Any]]) -> "Beside":
        """Return the same after an update, given by rank what the data say, in the order of ``keys_of``."""

    @abstractmethod
    def is_like(self, other: "Beside | None") -> bool:
        """Return whether what was made anew may be the same, as far as the client sees."""


@dataclass(frozen=True)
class GraphRecord:
    """A graph in the cluster.

    Attributes:
        graph_id: unique id of the graph.
        name: the name given to ``load``, else the name of the edge list.
        named: whether the graph stays until it is unloaded. Otherwise it stays until its client leaves or deletes it.
        client: id of the client that loaded the graph.
        source: name of the edge list.
        directed: whether edges hold in one direction only.
        stripe: the graph's stripe over the ranks.
        addresses: the gang's workers, by rank.
        partition_keys: Dask keys of the partitions, by rank.
        ids: how the caller's ids map to the vertices 0..n-1.
        order_key: Dask key of the ``DegreeOrder`` of a graph that is not in the order given; else None.
        input_edge_keys: by rank, Dask keys of the lists of ``InputEdges`` that are kept; empty if edges are not kept.
        infos: the partitions' counts, by rank.
        backend: the device of the ranks and of their partitions: ``cpu`` or ``cuda``.
        exchange: the requested exchange, one of ``EXCHANGES``.
        layout: how the edges lie on the ranks; None in ``1d``.
        created: time of loading, in seconds since the epoch.
        read_seconds: time of reading, if reading finished before building; else 0.
        build_seconds: time of reading and building.
        mutable: whether updates may change the graph.
        version: number of the graph's version; each update of edges or vertices makes the next.
        updated: edges and vertices that updates have inserted and deleted so far.
        beside: what a feature keeps beside the partitions; None if nothing.
        log: path of the folder that keeps its versions, so that it comes back at the last one; empty if none does.
        order_name: ``given``, ``degree`` or ``bfs``, as it was loaded; ``kept`` for that of a saved graph.
    """

    graph_id: Identifier
    name: ShownText
    named: bool
    client: Identifier
    source: ShownText
    directed: bool
    stripe: Stripe
    addresses: tuple[str, ...]
    partition_keys: tuple[Hashable, ...]
    ids: GraphIds
    order_key: Hashable | None
    input_edge_keys: tuple[Hashable, ...]
    infos: tuple[PartitionInfo, ...]
    backend: str
    exchange: str
    layout: Layout | None
    created: float
    read_seconds: float
    build_seconds: float
    mutable: bool = False
    version: int = 0
    updated: int = 0
    beside: Beside | None = None
    log: str = ""
    order_name: str = "given"

    @property
    def layout_name(self) -> str:
        """The layout's name: ``1d`` for stripes."""
        return "1d" if self.layout is None else self.layout.name

    @property
    def keys(self) -> list[Hashable]:
        """Dask keys of all the graph's data."""
        order = [] if self.order_key is None else [self.order_key]
        beside = () if self.beside is None else self.beside.keys
        return [*self.partition_keys, *self.ids.keys, *order, *self.input_edge_keys, *beside]

    def keys_of(self, rank: int) -> list[Hashable]:
        """Dask keys of a rank's data, without the order by degree, of which several ranks may have copies."""
        by_rank = (self.partition_keys, self.ids.keys, self.input_edge_keys)
        beside = () if self.beside is None else self.beside.keys_of(rank)
        return [*(keys[rank] for keys in by_rank if rank < len(keys)), *beside]


@dataclass(frozen=True)
class Formation:
    """How a graph's gang was formed.

    Attributes:
        backend: the device of the ranks: ``cpu`` or ``cuda``.
        exchange: the exchange of the resident engine: ``shared_memory``, ``tcp``, ``shared_memory+tcp``, ``cuda_ipc``
            or ``nccl``.
        slower: why GPUs exchange through the host though ``auto`` was requested; empty in all other cases.
        hosts: the host of each rank, if the ranks exchange by TCP between hosts; else empty.
    """

    backend: str
    exchange: str
    slower: str = ""
    hosts: tuple[int, ...] = ()


class WorkerState(StrEnum):
    """State of a worker, as the scheduler sees it."""

    READY = "ready"
    PAUSED = "paused"
    LATE = "late"


@dataclass(frozen=True)
class WorkerStatus:
    """A worker at one moment, as the scheduler sees it. No worker is asked.

    Attributes:
        address: its address.
        name: its name in Dask, which is the address unless the worker was given another.
        host: its host.
        state: ``paused`` by Dask for lack of memory: the worker starts no tasks; ``late``: silent for ``dbfs.silence``.
        since: when the state began, in seconds since the epoch.
        memory: bytes of memory of its process.
        memory_limit: bytes that the process may use; 0 for no limit.
        silent: seconds since the scheduler heard of the worker.
        graphs: names of the graphs with a rank there.
    """

    address: str
    name: str
    host: str
    state: WorkerState
    since: float
    memory: int
    memory_limit: int
    silent: float
    graphs: tuple[str, ...]

    def __str__(self) -> str:
        """Return the worker's name and address, and what keeps the worker from answering."""
        worker = printable(self.name)
        worker = f"worker {worker}" if worker == self.address else f"worker {worker} ({self.address})"
        if self.state is WorkerState.LATE:
            return f"{worker}, silent for {format_seconds(self.silent)}"
        if self.state is WorkerState.PAUSED:
            full = f"{format_bytes(self.memory)} of {format_bytes(self.memory_limit)}"
            return f"{worker}, paused: {full}; release results, or give it more memory"
        return worker


def waits_for(workers: Iterable[WorkerStatus]) -> str:
    """Return for which workers something waits, in words; empty if all are ready."""
    not_ready = [str(worker) for worker in workers if worker.state is not WorkerState.READY]
    return f"waits for {', and for '.join(not_ready)}" if not_ready else ""


@dataclass(frozen=True)
class GraphStatus:
    """A graph as ``dbfs.graphs()`` lists it.

    Attributes:
        name: the name given to ``load``, else the name of the edge list.
        n: number of vertices.
        m: number of directed edges stored.
        bytes_per_rank: bytes of each rank's partition, and of the columns of its edges.
        created: time of loading, in UTC.
        runs: runs started so far.
        backend: the device of the ranks: ``cpu`` or ``cuda``.
        exchange: the exchange of the resident engine.
        lost: ranks whose workers left.
        version: number of the graph's version: 0 unless updates changed the graph.
        free_pages: pages without a row, on all ranks; 0 unless updates changed the graph.
        changes_per_second: edges and vertices that updates inserted and deleted in each of the last ten seconds.
        not_ready: its workers that are late or paused, by rank.
        returning: how lost ranks come back, and how far that is, in words; empty if none is lost, or none comes back.
        view_of: id of the graph that it is a view of; empty if it is none.
        fixed_on: id of the graph that it was made of and does not follow; empty if it is no such view.
        dropped: whether the ranks do not have it, since its memory was needed; its next use makes it again.
    """

    name: str
    n: int
    m: int
    bytes_per_rank: tuple[int, ...]
    ranks: int
    created: datetime
    runs: int
    backend: str
    exchange: str
    lost: tuple[int, ...]
    version: int = 0
    free_pages: int = 0
    changes_per_second: float = 0.0
    not_ready: tuple[WorkerStatus, ...] = ()
    returning: str = ""
    view_of: str = ""
    fixed_on: str = ""
    dropped: bool = False


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run.

    During the run, the ranks report at slightly different moments, so that the counts are approximate. The counts of a
    run that is over are exact.

    Attributes:
        traversals: number of traversals of the run.
        finished: number of traversals that are over. Calls for batches and measures count sources.
        level: level under way of the traversal under way; for a run that is over, the last traversal's levels.
        direction: direction of that level, ``top-down`` or ``bottom-up``.
        frontier: vertices that the level expands.
        reached: vertices that the traversal has reached so far, the sources included.
        seconds: time since the run started.
        completed: of a batch under way, the sources that are completed before the batch is: swept over for betweenness,
            or traversed from one by one. Calls count them as finished.
        waits_for: the workers, or the scheduler, that the run waits for, in words; empty if all are ready.
    """

    traversals: int
    finished: int
    level: int
    direction: str
    frontier: int
    reached: int
    seconds: float
    completed: int = 0
    waits_for: str = ""


NO_PROGRESS = RunProgress(0, 0, 0, "", 0, 0, 0.0)
"""Of a run that no rank has told anything of."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that is over.

    Attributes:
        run_id: unique id of the run.
        graph: the graph's name.
        client: id of the client that started the run.
        traversals: number of traversals requested.
        ended: end of the run, in seconds since the epoch.
        seconds: time of all traversals, each from the start of its first level to the end of its last. For a run that
            failed or was cancelled, the time since it started.
        depth: largest distance of the last traversal; for a run that failed, the level of the latest look.
        reached: vertices that the last traversal reached; for a run that failed, those of the latest look.
        edges: directed edges of the traversed components, summed over all traversals.
        error: type and message of the error that ended the run early; empty if it finished.
        update: kind of the update that the run made; empty for traversals.
    """

    run_id: str
    graph: str
    client: str
    traversals: int
    ended: float
    seconds: float
    depth: int = 0
    reached: int = 0
    edges: int = 0
    error: str = ""
    update: str = ""

    @property
    def mteps(self) -> float:
        """Millions of directed edges per second."""
        return self.edges / self.seconds / 1e6 if self.seconds else 0.0


@dataclass(frozen=True)
class EarlyEnd:
    """A run that failed or was cancelled, and its progress before.

    Attributes:
        outcome: ``cancelled`` or ``failed``.
        looks: looks at the traversal in which the run ended, oldest first: those that found a frontier; at least one.
    """

    run: FinishedRun
    outcome: str
    looks: tuple[RunProgress, ...]


@dataclass(frozen=True)
class BuildProgress:
    """Progress of a build.

    Attributes:
        stage: what most workers do: ``reading``, ``numbering`` (ids), ``ordering`` (by degree), ``exchanging``
            (edges with the other ranks) or ``building``.
        done: tasks that are over.
        tasks: tasks submitted so far.
        pieces_read: pieces of the edge list that were read. GPUs generate some edge lists without reading.
        pieces: number of pieces to read.
        bytes_read: bytes in memory of the edges read before the build; 0 if the build itself reads the pieces.
        binned: by rank, pieces whose edges the rank has delivered to their owners; empty before, and on GPUs.
        seconds: time since the build began.
    """

    stage: str
    done: int
    tasks: int
    pieces_read: int
    pieces: int
    bytes_read: int
    binned: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class RunStatus:
    """A run that waits or is under way.

    Attributes:
        run_id: unique id of the run.
        graph: the graph's name.
        client: id of the client that started the run.
        traversals: number of traversals.
        running: False while the run waits for its workers.
        seconds: time since the run started; while it waits, since it was queued.
        progress: the run's progress; None while it waits, and before its first level.
        update: kind of the update that the run makes; empty for traversals.
        version: number of the graph's version at this moment.
        waits_for: the workers that the run waits for, in words; empty if all are ready.
    """

    run_id: str
    graph: str
    client: str
    traversals: int
    running: bool
    seconds: float
    progress: RunProgress | None
    update: str = ""
    version: int = 0
    waits_for: str = ""
