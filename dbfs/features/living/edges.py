"""An update on its way to its owners: read and binned by tasks on the ranks, as a build bins its edges."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import GraphRecord
from dbfs.building.on_cpu import HostBuilder
from dbfs.building.reverses import find_missing
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.dask import DelayedPiece
from dbfs_workers.building import delivering
from dbfs_workers.building.pieces import GeneratedPiece, Piece
from dbfs_workers.building.symmetry import MODULUS
from dbfs_workers.features.living import changing

# Bytes of a piece that goes with its task, through the scheduler. A larger one goes straight to its worker.
_SMALL: Final = 64 * 1024


class UpdateBins:
    """The bins of one update on the ranks. The caller releases ``held`` after the update, also after an error.

    Args:
        gang: the graph's workers.
        token: ending of the keys of the tasks.
        check: called at intervals during a wait; may raise.

    Attributes:
        held: futures of the update.
        keys: by rank, Dask keys of the collections of bins.
    """

    def __init__(
        self, gang: Gang, record: GraphRecord, token: str, deadline: Deadline, check: Callable[[], None]
    ) -> None:
        self.held: set[distributed.Future] = set()
        self.keys: tuple[Key, ...] = tuple((f"open-bins-{token}", rank) for rank in range(gang.p))
        self._gang = gang
        self._record = record
        self._token = token
        self._deadline = deadline
        self._check = check
        self._graph = TaskGraph()
        in_edges = record.directed and record.infos[0].has_parents
        for rank, key in enumerate(self.keys):
            self._graph.add(rank, key, delivering.open_collection, token, rank, record.stripe, 1 + in_edges)
            self._graph.add(rank, self._key("bins-open", rank), delivering.collection_open, Ref(key))

    def bin_edges(self, edges: EdgeList) -> None:
        """Read and bin edges, and deliver the bins. Errors as for ``build``; and as for ``read_changes``."""
        pieces = self._deal_out(edges.cut(HostBuilder.piece_edges(edges.m, self._gang.p)))
        if self._bin_pieces("bin-changes", edges, pieces) % MODULUS:
            missing = find_missing(edges, self._gang)
            self.held.update(missing.pieces)
            self._bin_pieces("bin-missing", edges, [Ref(piece.key) for piece in missing.pieces])

    def _bin_pieces(self, name: str, edges: EdgeList, pieces: Sequence[Any]) -> int:
        """Bin pieces, and deliver the bins; return the imbalance of the pieces' edges, or 0 if it does not matter."""
        record, gang = self._record, self._gang
        order = None if record.order_key is None else Ref(record.order_key)
        first_ids = (edges.first_id if edges.n is not None else 0, record.ids.first_id)
        symmetrise = not record.directed and not edges.mirrored
        for index, piece in enumerate(pieces):
            rank = index % gang.p
            rest = (record.stripe, symmetrise, edges.name, order, self._deadline.remaining, edges.paired)
            arguments = (piece, first_ids, *self._arguments(rank), *rest)
            self._graph.add(rank, self._key(name, index), changing.bin_changes, *arguments)
        return self._run([self._key(name, index) for index in range(len(pieces))], f"changing {record.name}")

    def bin_incident(self, vertices: NDArray[np.int64]) -> None:
        """Bin all edges of some vertices (positions, if the graph is ordered by degree), and deliver the bins.

        Errors as for ``Gang.gather``.
        """
        record = self._record
        for rank, key in enumerate(record.partition_keys):
            rest = (record.name, self._deadline.remaining)
            self._graph.add(
                rank,
                self._key("bin-changes", rank),
                changing.bin_incident,
                Ref(key),
                vertices,
                *self._arguments(rank),
                *rest,
            )
        self._run([self._key("bin-changes", rank) for rank in range(self._gang.p)], f"changing {record.name}")

    def _arguments(self, rank: int) -> tuple[Any, ...]:
        opened = [Ref(self._key("bins-open", other)) for other in range(self._gang.p)]
        return Ref(self.keys[rank]), opened, self._gang.addresses

    def _run(self, keys: list[Key], doing: str) -> int:
        """Run the tasks; return the sum of the results of ``keys``."""
        futures = self._gang.submit(self._graph, [*self.keys, *keys])
        self.held.update(futures.values())
        awaited = [futures[key] for key in keys]
        return sum(self._gang.gather(awaited, self._deadline, doing, self._check))

    def _deal_out(self, pieces: Sequence[Piece]) -> list[Any]:
        """Return the pieces as arguments of tasks, piece i on rank i % p."""
        dealt: list[Any] = []
        for index, piece in enumerate(pieces):
            if isinstance(piece, GeneratedPiece) or sys.getsizeof(piece) < _SMALL:
                dealt.append(piece)
                continue
            if isinstance(piece, DelayedPiece):
                future = self._gang.compute([piece.delayed])[0]
            else:
                address = self._gang.addresses[index % self._gang.p]
                future = self._gang.client.scatter([piece], workers=[address], hash=False)[0]
            self.held.add(future)
            dealt.append(Ref(future.key))
        return dealt

    def _key(self, name: str, index: int) -> Key:
        return (f"{name}-{self._token}", index)
