"""The method of graphs that saves one."""

from __future__ import annotations

import os

from dbfs.base.calls import part_of
from dbfs.cluster.deadline import bounded
from dbfs.graph.graph import Graph, R


@part_of("Graph")
class SavedGraph(Graph[R]):
    """Saving."""

    @bounded("build-deadline")
    def save(
        self,
        path: str | os.PathLike[str],
        *,
        replace: bool = False,
        deadline: float | str | None = None,
    ) -> int:
        """Save the graph with its columns in a folder, from which ``dbfs.load(path)`` loads it again on any ranks.

        Each rank writes its own files. The folder is a saved graph from the moment when all files are complete; if the
        save fails, the folder keeps what it had before. The message of an error after that moment says so.

        Of several clients that save to a folder the last one wins. What dead clients left is removed.

        Args:
            path: a folder that all workers share, or a URL that fsspec understands. The folder is made if it does not
                exist; it must have no other files.
            replace: replace the graph that is saved in the folder. Workers that have it loaded keep it.
            deadline: seconds (or a Dask duration) that the save may take; ``dbfs.build-deadline`` if None.

        Returns:
            The number of bytes written.

        Raises:
            InvalidOptionError: the folder has a saved graph and ``replace`` is false, or has other files; or
                ``dbfs.write.folders`` does not allow the folder; or the graph has deleted vertices.
            OutputError: the file system refuses a file, is full, or is not shared by all workers; or another client
                took this save for dead, a minute after its deadline.
            GraphTooLargeError: a worker has no memory for a copy of the partition that is on its GPU, or for the 1-D
                partition that it joins of a graph with ``layout="2d"``.
            WorkerLostError, DeadlineExceededError: a worker was lost, or the deadline has passed.
            ResultReleasedError: the graph was unloaded.
        """
        # Loads pyarrow.
        from dbfs.features.saved.saving import save

        self.refresh()
        return save(self.gang, self.record, path, self.keeper, replace=replace)
