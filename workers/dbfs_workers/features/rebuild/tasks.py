"""Tasks of ranks that come back: of data that comes from a worker that was retired, and of versions in a log."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dbfs_workers.base.errors import FormatError
from dbfs_workers.building.reading import room_of_task
from dbfs_workers.features.living.redo import made_again
from dbfs_workers.features.rebuild.log import Record, records, redo_path
from dbfs_workers.search.partition.partition import Partition, PartitionInfo, describe
from dbfs_workers.search.partition.shared_rows import share
from dbfs_workers.search.partition.stripe import Stripe


def arrived(value: Any) -> Any:
    """Return what Dask has brought to this worker, of which peers can map the rows; all else as it is."""
    if not isinstance(value, Partition):
        return value
    # Sharing uses the arrays up, and Dask still counts on those that came.
    return share(replace(value, row_offsets=value.row_offsets.copy(), columns=value.columns.copy()))


def redone(
    partition: Partition, folder: str, places: tuple[tuple[int, str, str], ...], anew: bool, memory_share: float
) -> Partition:
    """Return the last version of a rank that a log has.

    Args:
        partition: the rank as it was saved.
        folder: path of the log.
        places: of each version its number, the id of the graph whose gang made it, and the run.
        anew: whether the version is to be version 0 of another graph.
        memory_share: share of the worker's memory limit that the worker's process may reach.

    Raises:
        FormatError: the log is damaged, or is of another graph.
        GraphTooLargeError: the worker has no memory for the version.
    """
    free_bytes, rank = room_of_task(memory_share).free_bytes, partition.rank
    for graph_id in dict.fromkeys(place[1] for place in places):
        path = redo_path(Path(folder), graph_id, rank)
        wanted = {run_id: version for version, made_by, run_id in places if made_by == graph_id}
        # A run that was sent again has several records, of which the last one counts.
        found: dict[int, Record] = {
            wanted[run_id]: record for record in records(path) if (run_id := record.facts.get("run")) in wanted
        }
        for version in wanted.values():
            if version not in found or found[version].facts.get("version") != version:
                raise FormatError(f"{path} is damaged: it lacks version {version}")
            partition = made_again(partition, found[version].facts, found[version].arrays, free_bytes)
    if not anew:
        return partition
    if hasattr(partition, "frozen"):
        partition = partition.frozen()
    return share(replace(partition, version=0))


def told(partition: Partition) -> tuple[PartitionInfo, Stripe]:
    """Return a version's counts, and how its vertices lie on the ranks."""
    return describe(partition), partition.stripe
