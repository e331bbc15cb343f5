"""Versions of a living graph that come back: the saved graph, and then what its log has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dbfs import config
from dbfs.base.records import GraphRecord
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release
from dbfs.errors import FormatError, GraphLostError
from dbfs.features.living.updates import UPDATES_KEPT, UpdateReport
from dbfs.features.saved.edges import SavedEdges
from dbfs.service.messages import Reports
from dbfs_workers.features.rebuild import tasks
from dbfs_workers.features.rebuild.log import Decision, decisions
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.serving.rpc import PickledValue

if TYPE_CHECKING:
    import distributed

Places: TypeAlias = tuple[tuple[int, str, str], ...]
"""Where the versions of a log are: of each its number, the id of the graph whose gang made it, and the run."""


def log_of(edges: SavedEdges) -> Path:
    """Return the folder of the log of a saved graph."""
    token = manifests.token_of(edges.manifest.ranks[0].partition.name)
    return Path(edges.folder.path, f"_versions-{token}")


def logged(edges: object) -> list[Decision]:
    """Return the versions that came after a saved graph; none for other edges. Errors as of ``decisions``."""
    return decisions(log_of(edges)) if isinstance(edges, SavedEdges) and edges.folder.local else []


def places_of(found: Sequence[Decision]) -> Places:
    """Return where versions are."""
    return tuple((decision.version, decision.graph_id, decision.run_id) for decision in found)


def redone(
    gang: Gang, record: GraphRecord, folder: Path, places: Places, ranks: Iterable[int], *, anew: bool
) -> tuple[GraphRecord, list[distributed.Future]]:
    """Make the versions of a log again, on the ranks of the saved graph.

    Args:
        record: the graph as it was saved, with the gang's ranks.
        folder: the log.
        places: the versions.
        ranks: the ranks that are as they were saved; the others have the last version.
        anew: whether the last version is version 0 of another graph.

    Returns:
        The record of the last version, and the futures of its partitions.

    Raises:
        FormatError: a rank's log is damaged, or is of another graph. Others as of ``Gang.gather``.
    """
    graph, share = TaskGraph(), float(config.get("build.memory-share"))
    keys, made = list(record.partition_keys), list[Key]()
    for rank in ranks:
        redo = (tasks.redone, Ref(keys[rank]), str(folder), places, anew, share)
        keys[rank] = graph.add(rank, (f"redone-{record.graph_id}", rank), *redo).key
        made.append(keys[rank])
    told: list[Key] = [(f"redone-info-{record.graph_id}", rank) for rank in range(gang.p)]
    for rank, info in enumerate(told):
        graph.add(rank, info, tasks.told, Ref(keys[rank]))
    futures = gang.submit(graph, [*made, *told])
    try:
        found = gang.gather([futures[key] for key in told], of_call("build-deadline"), f"reading {folder}")
    except BaseException:
        release(futures.values())
        raise
    release([futures[key] for key in told])
    infos, stripes = zip(*found, strict=True)
    if len({*stripes}) > 1:
        release([futures[key] for key in made])
        raise FormatError(f"{folder} is damaged: its ranks have {' and '.join(map(str, {*stripes}))}")
    version = 0 if anew else len(places)
    record = replace(record, partition_keys=tuple(keys), infos=infos, stripe=stripes[0], version=version)
    return record, [futures[key] for key in made]


def require_all(record: GraphRecord, found: Sequence[Decision]) -> None:
    """Check that a log has all versions of a graph that was lost.

    Raises:
        GraphLostError: it lacks some.
    """
    if len(found) < record.version:
        raise GraphLostError(
            f"{record.name} can't be built again: {record.log} ends with version {len(found)}, and the graph had "
            f"version {record.version}; give it back from a copy, or load the graph again, with replace=True"
        )


def reports_of(made: Sequence[Decision], record: GraphRecord) -> Reports:
    """Return what clients are told that send the latest batches again."""
    latest = made[-UPDATES_KEPT:]
    return tuple((each.record.facts["batch"], PickledValue.of(_report(each, record))) for each in latest)


def _report(decision: Decision, record: GraphRecord) -> UpdateReport:
    facts = decision.record.facts
    return UpdateReport(
        record=record,
        edges=facts["edges"],
        refused=facts["refused"],
        first_refused=None,
        vertices=decision.record.arrays["vertices"],
        absent=facts["absent"],
        applied=True,
    )
