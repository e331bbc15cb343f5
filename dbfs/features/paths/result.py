"""The paths of one traversal to many targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.cluster.deadline import bounded
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs_workers.ids.label_table import whole_table

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds


@public
@dataclass(frozen=True)
class Paths(Tabular):
    """The result of ``BFSResult.paths_to``: a row for each vertex of each path. Needs no cluster.

    The rows are in the order of the targets of the call, and of one target from its source on.

    Attributes:
        name: the graph's name.
        targets: ids, the target of each row's path.
        steps: int64, the distance of each row's vertex from the source.
        vertices: ids of the rows' vertices.
    """

    name: str
    targets: CallerIds = field(repr=False)
    steps: NDArray[np.int64] = field(repr=False)
    vertices: CallerIds = field(repr=False)

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns ``target`` (the id), ``step`` (int64) and ``vertex`` (the id)."""
        return self._rows(slice(None))

    def _rows(self, rows: slice) -> pa.Table:
        return whole_table(target=self.targets[rows], step=self.steps[rows], vertex=self.vertices[rows])

    def _card(self) -> Card:
        paths = int(np.count_nonzero(self.steps == 0))
        return Card(self.name, {"Paths": f"{paths:,}", "Rows": f"{self.steps.size:,}"}, self._rows(SHOWN))


@part_of("BFSResult")
class PathsResult(BFSResult):
    """Many paths at once."""

    @bounded()
    def paths_to(self, targets: Any) -> Paths:
        """Return shortest paths from the sources to many targets: a table ``target``, ``step``, ``vertex``.

        The ranks follow the predecessors of all paths together, and only the paths travel. An unreached target has no
        rows. Of several shortest paths it is that of ``path_to``, which any run may choose anew; ``Graph.path`` is
        the same in each run.

        Args:
            targets: an id, or several; of one that occurs again the path is there again.

        Errors as for ``path_to``.
        """
        self._require_predecessors()
        graph = self.graph
        vertices = np.array(graph.vertices_named(targets, "target"), np.int64)
        paths, positions = self.reader().walk_all(np.array(graph.numbering.positions(vertices.tolist()), np.int64))
        lengths = np.bincount(paths, minlength=vertices.size)
        # The ranks walk towards the source.
        steps = np.cumsum(lengths)[paths] - 1 - np.arange(paths.size)
        order = np.lexsort((steps, paths))
        along = graph.numbering.vertices(positions[order])
        return Paths(graph.name, graph.ids_of(vertices[paths]), steps[order], graph.ids_of(along))
