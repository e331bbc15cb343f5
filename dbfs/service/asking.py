"""Questions about a graph to its ranks."""

from collections.abc import Mapping

from dbfs.base.records import GraphRecord
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang
from dbfs.cluster.rank_calls import RankCalls
from dbfs.errors import GraphNotFoundError, StaleRunError
from dbfs.service.client import ServiceClient
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.rpc import A


def ask_ranks(gang: Gang, messages: Mapping[int, WorkerMessage[A]], doing: str, record: GraphRecord) -> dict[int, A]:
    """Send ranks messages about a graph, and return the answers by rank.

    Args:
        gang, messages, doing: as of ``RankCalls``.
        record: the graph.

    Raises:
        GraphNotFoundError: the graph was unloaded.
        WorkerLostError: a rank does not have its data any more. Other errors as for ``RankCalls.answers``.
    """
    try:
        return RankCalls(gang, messages, of_call(), doing).answers()
    except StaleRunError as error:
        gone = GraphNotFoundError(f"{record.name}: {error}")
        raise ServiceClient.of(gang.client).gone(record.graph_id, gone) from error
