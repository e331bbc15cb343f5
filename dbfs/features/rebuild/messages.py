"""The messages of graphs that come back; ``scheduler.Rebuilds`` handles them."""

from __future__ import annotations

from dataclasses import dataclass

from dbfs.base.records import Formation, GraphRecord
from dbfs.features.rebuild.lineage import Lineage
from dbfs.service.messages import Reports, SchedulerMessage
from dbfs_workers.base.text import Identifier, ShownText
from dbfs_workers.serving.rpc import PickledValue


@dataclass(frozen=True)
class KeepLineage(SchedulerMessage[None]):
    """Keep what a graph was made of, with the graph.

    Attributes:
        lineage: passed on unread; None if the graph can't be built again.
        why_not: why it can't, and what would help, in words; None if it can.
        saved: whether the graph was saved there with all that it has, columns that came from a client's memory too.

    Raises:
        GraphNotFoundError: the graph was unloaded.
    """

    graph_id: str
    lineage: PickledValue[Lineage] | None
    why_not: ShownText | None
    saved: bool = False


@dataclass(frozen=True)
class RebuildTask:
    """A graph to build again, which the scheduler gives to one client at a time.

    Attributes:
        rebuild_id: the graph's next id.
        record: the graph before.
        lost: the ranks to build; all of them where nothing stands.
        addresses: the workers, by rank.
        why: why the graph is built again.
        ordered: whether a worker has the order by degree, if there is one.
        moved: whether Dask has moved the data of the lost ranks to other workers, since theirs were retired.
    """

    rebuild_id: str
    record: GraphRecord
    lost: tuple[int, ...]
    addresses: tuple[str, ...]
    lineage: PickledValue[Lineage]
    why: str
    ordered: bool
    moved: bool


@dataclass(frozen=True)
class Present:
    """A graph that is whole, as it was built last."""

    record: GraphRecord
    formed: Formation


@dataclass(frozen=True)
class BeginRebuild(SchedulerMessage[RebuildTask | Present | str]):
    """Ask for a graph again, by any id that it had: it is whole, or to be built by this client, or waits (in words).

    The answer comes within a fraction of a second; a client whose graph waits asks again.

    Attributes:
        client: id of the client.
        wait: seconds after the first question in which a worker may come that takes a lost one's place. After that the
            graph is dealt anew over the workers that are there.
        seconds: seconds that a rebuild of this client may take; after that another client may begin one.
        ranks: number of ranks of a graph that is to be spread anew; None to keep its ranks.

    Raises:
        GraphNotFoundError: the graph was unloaded.
        GraphLostError: the graph can't be built again; the message says why.
        NoWorkersError: there are fewer workers than ``ranks``.
    """

    graph_id: str
    client: Identifier
    wait: float
    seconds: float
    ranks: int | None = None


@dataclass(frozen=True)
class NoteRebuild(SchedulerMessage[None]):
    """Tell how far a rebuild has come. Ignored if it is over.

    Attributes:
        progress: the stage, in words.
    """

    rebuild_id: str
    progress: ShownText


@dataclass(frozen=True)
class EndRebuild(SchedulerMessage[Formation]):
    """Take over what was built, form the gang, and put the graph in the place of what is left of it.

    Attributes:
        record: the graph as it is now; its id is that of the rebuild.
        built: bytes of the partitions that were built.
        deadline: seconds that forming the gang may take.
        reports: what clients that send batches again are told, by batch id, of versions that the scheduler lacks.

    Raises:
        StaleRunError: the rebuild is over: its client was taken for gone.
        GraphNotFoundError: the graph was unloaded meanwhile.
        WorkerLostError: a worker left meanwhile. Others as for ``AddGraph``.
    """

    record: GraphRecord
    built: int
    deadline: float
    reports: Reports = ()


@dataclass(frozen=True)
class GiveUpRebuild(SchedulerMessage[None]):
    """Tell that a rebuild failed; another client may begin one. Ignored if it is over.

    Attributes:
        error: the error, as of ``EndLoad``.
    """

    rebuild_id: str
    error: ShownText


@dataclass(frozen=True)
class GraphState:
    """The state of a graph with respect to its ranks, at one moment.

    Attributes:
        state: ``whole``, ``lost`` (a rank is lost, and nobody builds it yet) or ``rebuilding``.
        lost: ranks whose workers left.
        why: why it is lost, why it is built again, or why the last attempt failed; empty if it is whole.
        progress: the stage of the rebuild, in words; empty if there is none.
        rebuilt: how often the graph was built again.
        seconds: time of the last rebuild; 0 before the first.
        bytes_built: bytes of the partitions that the last rebuild made. Those of ranks that stood are not among them.
        can_return: whether the graph can be built again.
    """

    state: str
    lost: tuple[int, ...]
    why: str
    progress: str
    rebuilt: int
    seconds: float
    bytes_built: int
    can_return: bool


@dataclass(frozen=True)
class GetGraphState(SchedulerMessage[GraphState]):
    """Return the state of a graph, by any id that it had.

    Raises:
        GraphNotFoundError: the graph was unloaded.
    """

    graph_id: str


@dataclass(frozen=True)
class AwaitLoss(SchedulerMessage[bool]):
    """Return whether a graph lost a rank: at once if it did, else after ``seconds``. Errors as of ``BeginRebuild``."""

    graph_id: str
    seconds: float
