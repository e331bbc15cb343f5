"""Errors that dbfs raises, by topic. Each is a ``DbfsError`` and also a subclass of the built-in that it resembles.

The errors live on the workers' side because workers raise them too; ``dbfs.errors`` exports them to users. Every error
takes its message and nothing else, so that it survives pickling on its way from a worker to a client.
"""

import builtins
import errno
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from typing import Any, Final

from dbfs_workers.base.text import printable

# Frames of a caller's code that a notebook shows.
_FRAMES_SHOWN = 3
# Packages whose frames a notebook does not show, beside Python's own library.
_HIDDEN = ("dbfs", "dbfs_workers", "dask", "distributed", "tornado", "IPython", "networkx", "click")


class DbfsError(Exception):
    """Base of all errors that dbfs raises on purpose. Its message is printable, whatever path or name stands in it."""

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message))

    def _render_traceback_(self) -> list[str]:
        """Return the traceback as IPython shows it: the lines of the caller's own code, and the message.

        The frames of dbfs and Dask say nothing that the message does not say; ``traceback.print_exception`` has them.
        """
        frames = [frame for frame in traceback.extract_tb(self.__traceback__) if not _is_inner(frame.filename)]
        lines = [f"{_place(frame.filename)}, line {frame.lineno}: {frame.line}" for frame in frames[-_FRAMES_SHOWN:]]
        return [*lines, *"".join(traceback.format_exception_only(self)).splitlines()]

    # Python's own default, repeated here because Dask pickles the errors of tasks by tblib. Where a class does not
    # define ``__reduce__``, tblib takes a way of its own, which no subclass of ``MemoryError`` survives.
    def __reduce__(self) -> str | tuple[Any, ...]:
        return super().__reduce__()


# Arguments of a call.


class InvalidVertexError(DbfsError, ValueError):
    """Raised for a vertex id that is negative, past the last vertex, or not in the graph."""


class DeletedVertexError(InvalidVertexError):
    """Raised by ranks for a deleted vertex. The client names the vertex by its id.

    Attributes:
        position: the first such vertex; its position, if the graph is ordered by degree.
        words: the rest of the message.
    """

    position: int
    words: str


class InvalidVertexTypeError(DbfsError, TypeError):
    """Raised for a vertex id that is not an integer: a float, a bool, a string."""


class InvalidOptionError(DbfsError, ValueError):
    """Raised for an option whose value is out of range or not one of its choices; the message lists the choices."""


class InvalidOptionTypeError(DbfsError, TypeError):
    """Raised for an option whose value has the wrong type, such as ``ranks=2.5``."""


class InvalidCallError(InvalidOptionError, TypeError):
    """Raised for arguments that a call does not have: a misspelt option, one too many, one missing.

    The message names the call, and the option that is meant.
    """


class DirectedGraphError(DbfsError, ValueError):
    """Raised if a function that is defined for undirected graphs only gets a directed graph."""


class DisconnectedGraphError(DbfsError, ValueError):
    """Raised if a measure that needs a path between all vertices gets a graph without one."""


class PlanError(DbfsError, ValueError):
    """Raised for an invalid benchmark plan; the message has the file, the key and what would be right."""


class ClientError(DbfsError, TypeError):
    """Raised for an unusable client: not a ``distributed.Client``, closed, or in the thread of its own event loop."""


class MainGuardError(DbfsError, SystemExit):
    """Raised if a script starts processes outside ``if __name__ == "__main__":``. It ends the script with one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        # Python prints the code of a SystemExit that is not a number, without a traceback, and exits with 1.
        self.code = str(self)


class MissingPackageError(DbfsError, ImportError):
    """Raised if a feature needs an optional package that is not installed; the message has the extra to install."""


# Edges and files.


class EdgeInputError(DbfsError, ValueError):
    """Raised for malformed edges in arrays, matrices or tables: wrong shapes, dtypes or ids."""


class FormatError(DbfsError, ValueError):
    """Raised for a file that breaks its format; the message names the file and, for text, the line."""


class TruncatedFileError(FormatError):
    """Raised for a file that ends too early: empty, cut, or with fewer edges than its header says."""


class MissingFileError(DbfsError, FileNotFoundError):
    """Raised if a file to read does not exist."""


class UnreadableFileError(DbfsError, OSError):
    """Raised if the machine or the network can't read a file: a loop of links, a refused connection, a bad archive."""


class OutputError(DbfsError, OSError):
    """Raised if a file cannot be written: the folder refuses it, or the disk is full."""


class GraphTooLargeError(DbfsError, MemoryError):
    """Raised if a graph does not fit; the message has the bytes (or ids) needed and those available."""


class NoRoomForLabelsError(DbfsError, MemoryError):
    """Raised if the labels of a traversal do not fit beside those that are kept; the message says what frees room."""


class TooManyPathsError(DbfsError, OverflowError):
    """Raised where a vertex has more shortest paths from another one than a number holds: int64 up to 9.2e18, float64
    up to 1.8e308."""


class DistanceOverflowError(DbfsError, OverflowError):
    """Raised if the distances of a run by weight need more than 64 bits; the message names the column."""


class QueueOverflowError(DbfsError, MemoryError):
    """Raised if duplicates fill a strategy's queue; the message has the entries needed and what drops duplicates."""


# The cluster.


class NoWorkersError(DbfsError, TimeoutError):
    """Raised if the cluster did not have the requested workers within the configured time."""


class VersionMismatchError(DbfsError, RuntimeError):
    """Raised if the scheduler or a worker has no dbfs, or another version than the client; the message names it."""


class BackendUnavailableError(DbfsError, RuntimeError):
    """Raised if a worker cannot compute on the requested device; the message names the rank and what is missing."""


class ExchangeUnavailableError(DbfsError, OSError):
    """Raised if ranks cannot exchange as requested: on different hosts, in different containers, without a package."""


class ResourceError(DbfsError, OSError):
    """Raised if a process has too few open files or too little memory left; the message names the process."""


class WorkerLostError(DbfsError, ConnectionError):
    """Raised if the connection to a worker that holds a rank is lost; the message names the rank and the worker."""


class UnreachableError(WorkerLostError):
    """Raised if the connection to a worker broke during a call."""


class SchedulerLostError(DbfsError, ConnectionError):
    """Raised if the connection to the scheduler is lost, or a graph is used that was lost with an earlier scheduler.

    All graphs of a cluster are lost with its scheduler.
    """


# Graphs and runs by name.


class GraphNotFoundError(DbfsError, LookupError):
    """Raised if no graph has the name (the message lists the names), or the graph was unloaded."""


class NameTakenError(DbfsError, ValueError):
    """Raised if another graph in the cluster has the name, or is being built under it."""


class RunNotFoundError(DbfsError, LookupError):
    """Raised if no run with the id waits or is under way."""


class NotOwnerError(DbfsError, PermissionError):
    """Raised if a client cancels another client's run, or unloads another client's graph that has no name."""


class QueueFullError(DbfsError, RuntimeError):
    """Raised for a run that would wait behind more runs than ``dbfs.service.waiting-runs`` allows."""


# The course of a run, and its results.


class DeadlineExceededError(DbfsError, TimeoutError):
    """Raised if a run or a build took longer than its deadline; the message names rank, level and phase."""


class LateError(DeadlineExceededError):
    """Raised if a process did not answer in time: the scheduler, or a rank's worker. It may answer later.

    Nothing is lost with a late process. A lost one raises ``WorkerLostError`` or ``SchedulerLostError``.
    """


class OutcomeUnknownError(DeadlineExceededError):
    """Raised if a change of a graph met its deadline, and whether the change was made can't be known.

    ``Graph.version`` shows the outcome later. A batch that is sent again with the same ``batch_id`` is made once.
    """


class RunCancelledError(DbfsError, InterruptedError):
    """Raised if a run was cancelled: by ``run.cancel()``, by unloading its graph, or because its client left."""


class RunAbortedError(DbfsError, RuntimeError):
    """Raised if a run ended because another rank failed; the message names the first rank to fail, and why."""


class DeviceFailedError(DbfsError, RuntimeError):
    """Raised if a GPU failed: CUDA reported an error, or a kernel did not end; the message names the rank."""


class StaleRunError(DbfsError, RuntimeError):
    """Raised for a message or a phase out of order: wrong graph, run id, level or phase. The run ends."""


class ValidationError(DbfsError, AssertionError):
    """Raised if a result breaks a rule of breadth-first search; the message names the rules, vertices and ranks."""


class ResultReleasedError(DbfsError, RuntimeError):
    """Raised if labels are requested after the result or its graph was released."""


_LACKING = {
    errno.EMFILE: "The limit of open files (ulimit -n) is too low",
    errno.ENFILE: "The machine's limit of open files (fs.file-max) is too low",
    errno.ENOMEM: "The machine has no memory left",
    errno.ENOSPC: "A file system is full; shared memory is in /dev/shm",
}


def resource_error(error: BaseException, where: str) -> DbfsError | None:
    """Return the ``ResourceError`` for a process that lacks files or memory; None for all other errors.

    Args:
        where: the process, or the work there; the message begins with it.
    """
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    if isinstance(error, DbfsError) or not isinstance(error, OSError | MemoryError) or number not in _LACKING:
        return None
    return ResourceError(f"{where}: {type(error).__name__}: {error}. {_LACKING[number]}")


def outside(name: str, source: int, target: int, n: int) -> InvalidVertexError:
    """Return the error for an edge with an id that is not a vertex; ``name`` is the name of the edge list."""
    return InvalidVertexError(f"{name}: edge ({source}, {target}) has an id outside 0..{n - 1} (n = {n})")


LEFT_OUT: Final = "is left out of this graph"
"""What is said of a vertex of a graph's ids without which the graph was made."""


def deleted_error(positions: Sequence[int], version: int) -> DeletedVertexError:
    """Return the error for deleted vertices, by their positions."""
    more = f" and {len(positions) - 1:,} more" if len(positions) > 1 else ""
    # A graph that no update has changed may have been made without some vertices of another.
    words = f"{more} was deleted; version {version} of the graph does not have it" if version else f"{more} {LEFT_OUT}"
    error = DeletedVertexError(f"vertex {positions[0]}{words}")
    error.position, error.words = positions[0], words
    return error


def _is_inner(filename: str) -> bool:
    """Return whether a file is of Python's library, or of a package whose frames a notebook does not show."""
    folders = tuple(folder + os.sep for name in _HIDDEN for folder in getattr(sys.modules.get(name), "__path__", ()))
    in_library = filename.startswith(sysconfig.get_path("stdlib")) and "site-packages" not in filename
    return filename.startswith(folders) or in_library


def _place(filename: str) -> str:
    """Name a file to a reader; IPython keeps the text of a cell under a made-up name, and has a name for readers."""
    shell = getattr(builtins, "get_ipython", lambda: None)()
    cell = shell and shell.compile.format_code_name(filename)
    return " ".join(cell) if cell else filename
