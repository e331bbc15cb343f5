"""What the service knows of graphs and runs, as clients and the scheduler exchange it."""

from collections.abc import Hashable
from dataclasses import dataclass

from dbfs_workers import backends
from dbfs_workers.storage.partition import PartitionInfo
from dbfs_workers.storage.stripe import Stripe

EXCHANGES = ("auto", "cuda_ipc", "shared_memory", "comm")
BACKENDS = ("auto", *backends.BACKENDS)


@dataclass(frozen=True)
class GraphRecord:
    """A graph in the cluster.

    Attributes:
        graph_id: unique.
        name: what users call it.
        named: whether it lives until it is unloaded; else until its client leaves or lets go of it.
        client: id of the client that loaded it.
        source: where the edges came from.
        directed: whether edges hold in one direction only.
        stripe: how it lies on the ranks.
        addresses: the gang's workers, by rank.
        partition_keys: Dask keys of the partitions, by rank.
        external_ids_key: Dask key of the file's own ids; None where they are 0..n-1.
        order_key: Dask key of the ``DegreeOrder`` of a graph that is ordered by degree; else None.
        input_edge_keys: by rank, Dask keys of the lists of ``InputEdges`` that it keeps; none where they are not kept.
        infos: the partitions' counts, by rank.
        backend: what its ranks compute on, and its partitions are on: ``cpu`` or ``cuda``.
        exchange: how its ranks shall exchange, one of ``EXCHANGES``.
        created: seconds since the epoch.
        read_seconds: how long reading took where it came before building; 0 where the two went together.
        build_seconds: how long reading and building took.
    """

    graph_id: str
    name: str
    named: bool
    client: str
    source: str
    directed: bool
    stripe: Stripe
    addresses: tuple[str, ...]
    partition_keys: tuple[Hashable, ...]
    external_ids_key: Hashable | None
    order_key: Hashable | None
    input_edge_keys: tuple[Hashable, ...]
    infos: tuple[PartitionInfo, ...]
    backend: str
    exchange: str
    created: float
    read_seconds: float
    build_seconds: float

    @property
    def keys(self) -> list[Hashable]:
        """Dask keys of all its data."""
        extra = [key for key in (self.external_ids_key, self.order_key) if key is not None]
        return [*self.partition_keys, *extra, *self.input_edge_keys]


@dataclass(frozen=True)
class Formed:
    """What a graph's gang became.

    Attributes:
        backend: what its ranks compute on: ``cpu`` or ``cuda``.
        exchange: how they exchange in the resident engine: ``shared_memory``, ``comm`` or ``cuda_ipc``.
        slower: why GPUs do not exchange as fast as GPUs can, in words; empty where they do or that was asked for.
    """

    backend: str
    exchange: str
    slower: str = ""


@dataclass(frozen=True)
class GraphStatus:
    """A graph as ``dbfs.graphs()`` lists it.

    Attributes:
        name: what users call it.
        n: vertices.
        m: directed edges stored.
        bytes_per_rank: bytes of each rank's partition.
        ranks: number of ranks.
        created: seconds since the epoch.
        runs: runs started so far.
        backend: what its ranks compute on.
        exchange: how its ranks exchange.
        lost: ranks whose workers are gone.
    """

    name: str
    n: int
    m: int
    bytes_per_rank: tuple[int, ...]
    ranks: int
    created: float
    runs: int
    backend: str
    exchange: str
    lost: tuple[int, ...]


@dataclass(frozen=True)
class RunProgress:
    """Where a run is. While it lasts its ranks are asked one after another, so that the numbers are nearly those of one
    moment; when it is over they are exact.

    Attributes:
        traversals: how many it makes.
        finished: how many of them are over.
        level: of the traversal under way the level under way; of one that is over, how many it had.
        direction: of that level, ``top-down`` or ``bottom-up``.
        frontier: vertices that it expands.
        reached: vertices reached by the traversal so far, its sources included.
        seconds: since the run started.
    """

    traversals: int
    finished: int
    level: int
    direction: str
    frontier: int
    reached: int
    seconds: float


@dataclass(frozen=True)
class FinishedRun:
    """A run that is over, as the service remembers it.

    Attributes:
        run_id: unique.
        graph: the graph's name.
        client: id of the client that asked for it.
        traversals: how many it made, or was to make.
        ended: seconds since the epoch.
        seconds: of all traversals, from the start of the first level to the end of the last; of a run that failed,
            since it started.
        depth: largest distance of the last traversal.
        reached: vertices that the last traversal reached.
        edges: directed edges of the traversed components, of all traversals.
        error: what ended it early; empty where nothing did.
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

    @property
    def mteps(self) -> float:
        """Directed edges a second, in millions."""
        return self.edges / self.seconds / 1e6 if self.seconds else 0.0


@dataclass(frozen=True)
class EarlyEnd:
    """A run that ended early, and what was seen of it before.

    Attributes:
        run: as it is remembered.
        outcome: ``cancelled`` or ``failed``.
        looks: at the traversal it ended in, oldest first, those that found a frontier; at least one.
    """

    run: FinishedRun
    outcome: str
    looks: tuple[RunProgress, ...]


@dataclass(frozen=True)
class BuildProgress:
    """Where a build is.

    Attributes:
        stage: the task that most workers are at, as Dask's dashboard names it.
        done: tasks that are over.
        tasks: tasks submitted so far.
        pieces_read: pieces of the edge list that were read; GPUs make some edges without reading.
        pieces: how many there are.
        bytes_read: of their edges, in memory.
        seconds: since the build began.
    """

    stage: str
    done: int
    tasks: int
    pieces_read: int
    pieces: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class RunStatus:
    """A run that waits or is under way.

    Attributes:
        run_id: unique.
        graph: the graph's name.
        client: id of the client that asked for it.
        traversals: how many it makes.
        running: False while it waits for its workers.
        seconds: since it started, or was queued.
        progress: where it is; None while it waits, and before its first level.
    """

    run_id: str
    graph: str
    client: str
    traversals: int
    running: bool
    seconds: float
    progress: RunProgress | None
