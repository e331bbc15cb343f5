"""The graphs of a cluster: their names, their data, and the gangs of their ranks."""

import itertools
from collections.abc import Hashable
from typing import Final

import distributed

from dbfs.base.records import GraphRecord
from dbfs.errors import ClientError, GraphNotFoundError, NameTakenError, WorkerLostError
from dbfs.service import forming
from dbfs.service.entries import GraphEntry, Reservation
from dbfs.service.messages import Reserve
from dbfs.service.worker_calls import WorkerCalls
from dbfs_workers.serving.messages import DisconnectExchange, LeaveGang

# The client under whose name the scheduler keeps the keys of all graphs, as Dask does for published datasets. With a
# name for each graph, ``scheduler.clients`` would keep an entry for each graph that was ever loaded.
_HOLDER: Final = "dbfs"


class GraphTable:
    """The graphs of a cluster.

    Args:
        scheduler: the scheduler, which keeps the graphs' data alive.
        graphs: the graphs by graph id, in the order of loading.
        reserved: reservations for graphs that are being built, by graph id.
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
        self._reserved = reserved
        # By graph id. Graphs may share data, which Dask counts once for the holder.
        self._held: dict[str, list[Hashable]] = {}

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
        """
        if graph_id not in self._graphs:
            raise GraphNotFoundError("the graph was unloaded; load it again")
        return self._graphs[graph_id]

    def named(self, name: str) -> GraphEntry:
        """Return the graph of a name.

        Raises:
            GraphNotFoundError: no graph has the name; the message lists the names, or says that it is being built.
        """
        named = {graph.record.name: graph for graph in self._graphs.values() if graph.record.named}
        if name not in named:
            if any(reservation.name == name for reservation in self._reserved.values()):
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
            if any(reservation.name == name for reservation in self._reserved.values()):
                raise NameTakenError(f"a graph named {name!r} is being built; choose another name")
            same = [graph for graph in self._graphs.values() if graph.record.name == name]
            if same and not (message.replace and all(graph.record.named for graph in same)):
                way = "" if message.replace else "replace=True (dbfs load --replace) replaces that graph; or "
                raise NameTakenError(f"a graph named {name!r} exists already; {way}choose another name")
        # Reserved before the old graph is dissolved, so that no other client takes the name meanwhile.
        self._reserved[message.graph_id] = Reservation(message.client, message.addresses, name)
        return self._taken_out(name) if name is not None and message.first else []

    def release_all(self, client: str) -> None:
        """End the reservations of a client."""
        for graph_id in [graph_id for graph_id, kept in self._reserved.items() if kept.client == client]:
            del self._reserved[graph_id]

    @property
    def workers(self) -> set[str]:
        """Addresses of the workers that hold a graph, or that a graph is being built on."""
        kept = [graph.record.addresses for graph in self._graphs.values() if not graph.lost]
        kept += [reservation.addresses for reservation in self._reserved.values()]
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
        self._held[record.graph_id] = record.keys
        self._scheduler.client_desires_keys(keys=record.keys, client=_HOLDER)
        try:
            graph.formed = await forming.form(record, self._workers.until(end))
            self._require_admission(record)
        except BaseException:
            await self.disband(graph)
            raise
        replaced = self._taken_out(record.name) if record.named else []
        self._graphs[record.graph_id] = graph
        self._reserved.pop(record.graph_id, None)
        return graph, replaced

    async def disband(self, graph: GraphEntry) -> None:
        """End a graph's gang, and free its data."""
        graph_id, addresses = graph.record.graph_id, graph.record.addresses
        if graph.maps_gpus:
            await self._workers.call_all(addresses, DisconnectExchange(graph_id))
        await self._workers.call_all(addresses, LeaveGang(graph_id, next(forming.EPOCHS)))
        self.free(graph)

    def free(self, graph: GraphEntry) -> None:
        """Free the data of a graph, except what other graphs hold too."""
        keys = self._held.pop(graph.record.graph_id, [])
        shared = set(itertools.chain.from_iterable(self._held.values()))
        self._scheduler.client_releases_keys(keys=[key for key in keys if key not in shared], client=_HOLDER)

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
            reservation = self._reserved.get(record.graph_id)
            if reservation is None or reservation.name != record.name:
                raise NameTakenError(f"{record.name}: the name is not reserved for this graph any more; load it again")
        missing = [address for address in record.addresses if address not in self._scheduler.workers]
        if missing:
            lost = ", ".join(missing)
            raise WorkerLostError(f"{record.name}: lost {lost} while the graph was built; load it again")
