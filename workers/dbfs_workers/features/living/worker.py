"""A worker's part in updates of living graphs: prepare the next version, then commit it or forget it.

Preparing changes nothing that a traversal reads, so a rank whose update is forgotten keeps its version. Committing
replaces the partition among the worker's data. All ranks prepare before any commits. Rank 0 leads the update
(``turns.rounds``), and the scheduler has a rank commit that was late.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from distributed.spill import SpillBuffer

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.features.living.carried import Carried, Made, Step
from dbfs_workers.features.living.change_log import EdgeChanges, VersionChanges, most_edges
from dbfs_workers.features.living.kernels import NEEDED
from dbfs_workers.features.living.messages import CommitUpdate, RankUpdate, TakeUpdate
from dbfs_workers.features.living.part import living_of
from dbfs_workers.features.living.redo import redo_of
from dbfs_workers.features.living.update_spec import UpdateChange, UpdateSpec
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.partition import GraphTotals, Partition, describe
from dbfs_workers.serving.feature import WorkerView
from dbfs_workers.serving.turns.changes import Change, RankChanges, Redo

if TYPE_CHECKING:
    from dbfs_workers.features.living.versions import NextVersion

Keys = tuple[Any, Any | None]
T = TypeVar("T")


@dataclass(frozen=True)
class _PreparedVersion:
    """A version that waits for its commit.

    Attributes:
        partition: the version.
        changes: the changes from the version before; None if only the pages are new.
        facts: see ``NextVersion``.
        spec: the update.
        keys: the keys of the edges that changed, and of their reverses; None if no keys are known.
        beside: the data beside the partition, by Dask key.
    """

    run_id: str
    partition: Partition
    changes: VersionChanges | None
    facts: Any | None
    spec: UpdateSpec
    keys: Keys
    beside: Mapping[Hashable, Carried] = field(default_factory=dict)


class Updates(RankChanges):
    """The updates of a worker's ranks."""

    kernels: ClassVar[tuple[str, ...]] = NEEDED

    def __init__(self, view: WorkerView) -> None:
        super().__init__(view)
        self._worker = view.worker
        self._member = view.member
        self._prepared: dict[str, _PreparedVersion] = {}
        # By graph id: the run, and the keys of the update's edges (see ``versions.update_keys``).
        self._taken: dict[str, tuple[str, Keys]] = {}

    @TakeUpdate.handler
    async def take_update(self, message: TakeUpdate) -> int:
        member = self._member(message.graph_id)
        self._taken.pop(message.graph_id, None)
        src, dst = np.frombuffer(message.edges, np.uint32).reshape(2, -1)
        partition = self._worker.data[member.partition_key]
        keys = await member.in_thread(living_of(member).update_keys, partition, src, dst, message.symmetrise)
        self._taken[message.graph_id] = message.run_id, keys
        size: int = keys[0].size
        return size

    def prepare(self, member: Member, graph_id: str, run_id: str, partition: Partition, change: Change) -> RankUpdate:
        """See ``RankChanges``.

        Raises:
            StaleRunError: the update is gone.
            GraphTooLargeError: the version does not fit.
            InvalidVertexError: an edge to insert has an end that was deleted.
        """
        assert isinstance(change, UpdateChange)
        spec, collection = change.spec, change.collections[member.rank] if change.collections else None
        self._prepared.pop(graph_id, None)
        taken_by, keys = self._taken.pop(graph_id, ("", None))
        found: Any = None
        if collection is not None:
            found = self._with_data(member, lambda: self._worker.data.get(collection))
        if found is not None:
            edges: Sequence[Any] = getattr(found, "stores", ())
        elif keys is not None and taken_by == run_id:
            edges = keys
        elif collection is not None or (spec.kind in ("insert-edges", "delete-edges") and spec.edges is None):
            raise StaleRunError(f"rank {member.rank}: the batch of run {run_id} is gone; send it again")
        else:
            edges = ()
        if isinstance(found, Made):
            updated = _replaced(partition, found)
        else:
            updated = living_of(member).updated(partition, spec, *edges)
        beside = self._beside(member, change, partition, updated, found)
        changes, stripe = updated.changes, updated.partition.stripe
        refused = spec.kind != "delete-vertices" and changes.refused > 0
        logged_edges, changed = None, None if spec.kind == "replace" else changes.keys
        if changed is not None and changed.size <= most_edges(updated.partition.m_local):
            logged_edges = EdgeChanges.of(changed, stripe, hub_first=spec.hub_first)
        logged = VersionChanges(updated.partition.version, logged_edges, spec.kind != "insert-edges")
        following = updated.partition.version > partition.version
        self._prepared[graph_id] = _PreparedVersion(
            run_id,
            updated.partition,
            logged if following else None,
            updated.facts,
            spec,
            (changes.keys, updated.in_keys),
            beside,
        )
        return RankUpdate(
            info=describe(updated.partition),
            stripe=stripe,
            version=updated.partition.version,
            connected=0 if updated.facts is None else updated.facts.connected,
            refuses=change.strict and (refused or updated.absent > 0),
            edges=changes.edges,
            refused=changes.refused,
            first_refused=changes.first_refused,
            vertices=updated.vertices,
            absent=updated.absent,
            beside=tuple(each.facts for each in beside.values()),
        )

    def _beside(
        self, member: Member, change: UpdateChange, before: Partition, updated: "NextVersion", batch: Any
    ) -> dict[Hashable, Carried]:
        """Return the data beside a version that follows ``before``, by Dask key; ``batch`` as of ``Step``."""
        keys, spec = change.beside[member.rank] if change.beside else (), change.spec
        if not keys:
            return {}
        kept: Sequence[Carried] = (
            batch.beside
            if isinstance(batch, Made)
            else self._with_data(member, lambda: [self._worker.data[key] for key in keys])
        )
        step = Step(
            spec.kind,
            before,
            updated.partition,
            spec.hub_first,
            updated.changes.keys,
            updated.in_keys,
            updated.vertices,
            batch,
            spec.replaces,
        )
        return {key: each.following(step) for key, each in zip(keys, kept, strict=True)}

    def redo(self, graph_id: str, run_id: str) -> Redo | None:
        """See ``RankChanges``: of the edges those that changed."""
        prepared = self._prepared[graph_id]
        assert prepared.run_id == run_id
        if prepared.changes is None:
            return None
        return redo_of(prepared.spec, prepared.partition.version, *prepared.keys)

    @CommitUpdate.handler
    async def commit_update(self, message: CommitUpdate) -> None:
        member = self._member(message.graph_id)
        prepared = self._take_prepared(message.graph_id, message.run_id)
        if prepared is None:
            # An earlier call's commit may be under way.
            await member.in_thread(_require_version, member, message.run_id, message.version)
            return
        # A commit that takes nothing over waits for no thread, since threads may come late on busy cores.
        living = living_of(member)
        if living.takes_over:
            await member.in_thread(living.take_over, prepared.partition, message.totals, prepared.facts)
        self._put(member, prepared)

    def finish(self, member: Member, graph_id: str, run_id: str, totals: GraphTotals | None) -> None:
        """See ``RankChanges``; errors as for ``CommitUpdate``."""
        if totals is None:
            self._take_prepared(graph_id, run_id)
            return
        with member.in_use:
            prepared = self._take_prepared(graph_id, run_id)
            if prepared is None:
                raise StaleRunError(f"rank {member.rank}: run {run_id} has prepared no version")
            living = living_of(member)
            if living.takes_over:
                living.take_over(prepared.partition, totals, prepared.facts)
            self._with_data(member, lambda: self._put(member, prepared))

    def _with_data(self, member: Member, work: Callable[[], T]) -> T:
        """Call ``work``, which uses the worker's data, for a thread that is not the event loop's."""
        if isinstance(self._worker.data, dict | SpillBuffer):
            return work()

        async def call() -> T:
            return work()

        # The store of dask-cuda's workers is for one thread: it removes a key before it takes the key's new value.
        return member.wait_for(asyncio.run_coroutine_threadsafe(call(), self._worker.loop.asyncio_loop))

    def _put(self, member: Member, prepared: _PreparedVersion) -> None:
        """Make a version the rank's partition."""
        self._worker.data[member.partition_key] = prepared.partition
        for key, each in prepared.beside.items():
            self._worker.data[key] = each
        member.latest = prepared.partition
        if prepared.changes is not None:
            living_of(member).log.add(prepared.changes, prepared.partition.m_local)

    def _take_prepared(self, graph_id: str, run_id: str) -> _PreparedVersion | None:
        prepared = self._prepared.get(graph_id)
        return None if prepared is None or prepared.run_id != run_id else self._prepared.pop(graph_id, None)

    def forget(self, run_id: str) -> None:
        """Forget the update of a run."""
        self._taken = {graph_id: taken for graph_id, taken in self._taken.items() if taken[0] != run_id}

    def leave(self, graph_id: str) -> None:
        """Forget the prepared version, and the update, of a gang."""
        self._prepared.pop(graph_id, None)
        self._taken.pop(graph_id, None)


def _replaced(partition: Partition, made: Made) -> "NextVersion":
    """Return what was made of a rank as the version that follows ``partition``."""
    from dbfs_workers.features.living.versions import NextVersion

    # Graphs in other layouts take no changes.
    assert isinstance(made.partition, Partition)
    return NextVersion(replace(made.partition, version=partition.version + 1))


def _require_version(member: Member, run_id: str, version: int) -> None:
    """Check that a rank has committed a version. Called in a thread that has the member for itself.

    Raises:
        StaleRunError: the rank has an earlier version.
    """
    if member.latest is None or member.latest.version < version:
        raise StaleRunError(f"rank {member.rank}: run {run_id} has prepared no version")
