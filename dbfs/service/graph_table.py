"""The graphs of a cluster: their names, their data, and the gangs of their ranks."""

from collections.abc import Hashable, Iterable
from typing import Final

import distributed

from dbfs.base.records import GraphRecord
from dbfs.errors import ClientError, GraphNotFoundError, NameTakenError, WorkerLostError
from dbfs.service import forming
from dbfs.service.entries import GraphEntry, Reservation
from dbfs.service.messages import Reserve
from dbfs.service.worker_calls import WorkerCalls
from dbfs_workers.base.errors import GraphMovedError
from dbfs_workers.serving.messages import DisconnectExchange, LeaveGang

# The client under whose name the scheduler keeps the keys of all graphs, as Dask does for published datasets. With a
# name for each graph, ``scheduler.clients`` would keep an entry for each graph that was ever loaded.
_HOLDER: Final = "dbfs"
# Graphs that were built again under other ids, of which the latest are known. An object of the graph follows it at its
# next call.
_MOVES_KEPT: Final = 1024


class GraphTable:
    """The graphs of a cluster.

    Args:
        scheduler: the scheduler, which keeps the graphs' data alive.
        graphs: the graphs by graph id, in the order of loading.
        reserved: reservations for graphs that are being built, by graph id.

    Attributes:
        reserved: the same.
    """

    def __init__(
        self,
        scheduler: distributed.Scheduler,
        workers: WorkerCalls,
        graphs: dict[str, GraphEntry],
        reserved: dict[str, Reservation],
    ) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._graphs = graphs
        self.reserved = reserved
        # By graph id. Graphs may share data, which Dask counts once for the holder.
        self._held: dict[str, set[Hashable]] = {}
        # By the id of a graph, the id under which it was built again.
        self._moved: dict[str, str] = {}

    def require_client(self, client: str, what: str) -> None:
        """Check that a client is in the cluster: no later event would clear up after a stranger.

        Raises:
            ClientError: the client is not in the cluster; the message begins with ``what``.
        """
        if client not in self._scheduler.clients:
            raise ClientError(f"{what}: no client {client} is in the cluster; connect and load again")

    def get(self, graph_id: str) -> GraphEntry:
        """Return a graph.

        Raises:
            GraphNotFoundError: the graph was unloaded.
            GraphMovedError: the graph was built again, under another id.
        """
        graph = self.latest(graph_id)
        if graph.record.graph_id != graph_id:
            raise GraphMovedError(f"{graph.record.name} was built again; open it anew")
        return graph

    def latest(self, graph_id: str) -> GraphEntry:
        """Return a graph as it was built last, by any of the ids that it had; errors as for ``get``."""
        graph_id = self.latest_id(graph_id)
        if graph_id not in self._graphs:
            raise GraphNotFoundError("the graph was unloaded; load it again")
        return self._graphs[graph_id]

    def latest_id(self, graph_id: str) -> str:
        """Return the id under which a graph was built last, by any of the ids that it had."""
        while graph_id in self._moved:
            graph_id = self._moved[graph_id]
        return graph_id

    def named(self, name: str) -> GraphEntry:
        """Return the graph of a name.

        Raises:
            GraphNotFoundError: no graph has the name; the message lists the names, or says that it is being built.
        """
        named = {graph.record.name: graph for graph in self._graphs.values() if graph.record.named}
        if name not in named:
            if any(reservation.name == name for reservation in self.reserved.values()):
                raise GraphNotFoundError(f"the graph {name!r} is being built; open it when it is whole")
            names = ", ".join(map(repr, sorted(named)))
            listed = f"the names are {names}" if names else "no graph in the cluster has a name"
            raise GraphNotFoundError(f"no graph is named {name!r}; {listed}")
        return named[name]

    def reserve(self, message: Reserve) -> list[GraphEntry]:
        """Reserve workers and a name; return the graphs that must go first, taken out of the table, to be dissolved.

        Errors as for ``Reserve``.
        """
        name, same = message.name, list[GraphEntry]()
        self.require_client(message.client, "a graph" if name is None else f"the name {name!r}")
        if name is not None:
            if any(reservation.name == name for reservation in self.reserved.values()):
                raise NameTakenError(f"a graph named {name!r} is being built; choose another name")
            # What is left of a graph that can't come back keeps no name.
            same = [graph for graph in self._graphs.values() if graph.record.name == name and not graph.is_gone]
            if same and not (message.replace and all(graph.record.named for graph in same)):
                way = "" if message.replace else "replace=True (dbfs load --replace) replaces that graph; or "
                raise NameTakenError(f"a graph named {name!r} exists already; {way}choose another name")
        # Reserved before the old graph is dissolved, so that no other client takes the name meanwhile.
        self.reserved[message.graph_id] = Reservation(message.client, message.addresses, name)
        return self._taken_out(name) if name is not None and message.first else []

    def release_all(self, client: str) -> None:
        """End the reservations of a client."""
        for graph_id in [graph_id for graph_id, kept in self.reserved.items() if kept.client == client]:
            del self.reserved[graph_id]

    @property
    def workers(self) -> set[str]:
        """Addresses of the workers that hold a graph, or that a graph is being built on."""
        kept = [graph.record.addresses for graph in self._graphs.values() if graph.stands or not graph.lost]
        kept += [reservation.addresses for reservation in self.reserved.values()]
        return set().union(*kept)

    async def add(self, record: GraphRecord, end: float) -> tuple[GraphEntry, list[GraphEntry]]:
        """Take over the data of a graph that was built, form its gang until ``end`` (monotonic), and enter the graph.

        Returns:
            The graph, and the graphs that had its name, which are taken out of the table, to be dissolved.

        Raises:
            ClientError, NameTakenError, WorkerLostError: see ``AddGraph``; other errors as for ``forming.form``.
        """
        graph = GraphEntry(record)
        self._require_admission(record)
        # From here on, because Dask frees the data if the client leaves while the gang forms.
        self._hold(record)
        try:
            graph.formed = await forming.form(record, self._workers.until(end))
            self._require_admission(record)
        except BaseException:
            await self.disband(graph)
            raise
        replaced = self._taken_out(record.name) if record.named else []
        self._graphs[record.graph_id] = graph
        self.reserved.pop(record.graph_id, None)
        return graph, replaced

    async def move(self, old: GraphEntry, record: GraphRecord, end: float) -> GraphEntry:
        """Put a graph that was built again in the place of what is left of it; arguments and errors as for ``add``.

        The ranks that stand may have their data in both. After an error what was built is freed, and the graph is as
        before.
        """
        graph = GraphEntry(record)
        self._require_admission(record)
        self._hold(record)
        try:
            if old.lost:
                await self._leave(old)
            graph.formed = await forming.form(record, self._workers.until(end))
            self._require_admission(record)
            if self._graphs.get(old.record.graph_id) is not old:
                raise GraphNotFoundError(f"{record.name} was unloaded while it was built again")
        except BaseException:
            await self.disband(graph)
            raise
        # In the place of the old one, in the order of loading.
        entries = [graph if entry is old else entry for entry in self._graphs.values()]
        self._graphs.clear()
        self._graphs.update((entry.record.graph_id, entry) for entry in entries)
        self._moved[old.record.graph_id] = record.graph_id
        if len(self._moved) > _MOVES_KEPT:
            del self._moved[next(iter(self._moved))]
        self.reserved.pop(record.graph_id, None)
        graph.runs, graph.stands, graph.decided = old.runs, old.stands, old.decided
        if not old.lost:
            await self._leave(old)
        self.free(old)
        return graph

    async def disband(self, graph: GraphEntry) -> None:
        """End a graph's gang, and free its data."""
        await self._leave(graph)
        self.free(graph)

    async def _leave(self, graph: GraphEntry) -> None:
        """Have the ranks of a graph leave its gang."""
        graph_id, addresses = graph.record.graph_id, graph.record.addresses
        if graph.maps_gpus:
            await self._workers.call_all(addresses, DisconnectExchange(graph_id))
        await self._workers.call_all(addresses, LeaveGang(graph_id, next(forming.EPOCHS)))

    def lose(self, graph: GraphEntry, rank: int) -> None:
        """Free the data that a lost rank had, and that of the others unless they stand.

        Otherwise Dask would make the lost data again, on workers that can't hold them. What a worker had that was
        retired, Dask has moved to others.
        """
        if not graph.stands:
            self.free(graph)
            return
        order = graph.record.order_key
        keys = [] if self.moved(graph, rank) else graph.record.keys_of(rank)
        keys += [] if order is None or self.holds([order]) else [order]
        self._release(graph.record.graph_id, keys)

    def moved(self, graph: GraphEntry, rank: int) -> bool:
        """Return whether all data of a lost rank is on other workers, since Dask moved them."""
        return self.holds(graph.record.keys_of(rank))

    def holds(self, keys: Iterable[Hashable]) -> bool:
        """Return whether workers have the data of all these keys."""
        tasks = [self._scheduler.tasks.get(key) for key in keys]
        return all(task is not None and task.who_has for task in tasks)

    def free(self, graph: GraphEntry) -> None:
        """Free the data of a graph, except what other graphs hold too."""
        self._release(graph.record.graph_id, graph.record.keys)
        self._held.pop(graph.record.graph_id, None)

    def _hold(self, record: GraphRecord) -> None:
        """Keep the data of a graph."""
        self._held[record.graph_id] = set(record.keys)
        self._scheduler.client_desires_keys(keys=record.keys, client=_HOLDER)

    def _release(self, graph_id: str, keys: Iterable[Hashable]) -> None:
        """Free data of a graph, if it holds them, except what other graphs hold too."""
        held = self._held.get(graph_id, set())
        freed = held.intersection(keys)
        held -= freed
        freed.difference_update(*self._held.values())
        self._scheduler.client_releases_keys(keys=list(freed), client=_HOLDER)

    def _taken_out(self, name: str) -> list[GraphEntry]:
        """Take the graph of a name out of the table, if there is one."""
        same = [graph for graph in self._graphs.values() if graph.record.named and graph.record.name == name]
        for graph in same:
            del self._graphs[graph.record.graph_id]
        return same

    def _require_admission(self, record: GraphRecord) -> None:
        """Check that a graph may be added: its client, its reservation and its workers are in the cluster.

        Errors as for ``AddGraph``.
        """
        self.require_client(record.client, record.name)
        if record.named:
            reservation = self.reserved.get(record.graph_id)
            if reservation is None or reservation.name != record.name:
                raise NameTakenError(f"{record.name}: the name is not reserved for this graph any more; load it again")
        missing = [address for address in record.addresses if address not in self._scheduler.workers]
        if missing:
            lost = ", ".join(missing)
            raise WorkerLostError(f"{record.name}: lost {lost} while the graph was built; load it again")
