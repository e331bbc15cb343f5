"""Every error dbfs raises, each also a subclass of the built-in it resembles.

They live on the worker side because workers raise them too; ``dbfs.errors`` shows them to users. All of them survive
pickling (they travel from workers to clients), which is why none takes more than its message.
"""

from typing import Any


class DbfsError(Exception):
    """Base of all errors that dbfs raises on purpose."""

    # What Python does anyway. But where a class does not say it, tblib, by which Dask pickles the errors of tasks, goes
    # a way of its own, which no subclass of ``MemoryError`` survives.
    def __reduce__(self) -> str | tuple[Any, ...]:
        return super().__reduce__()


class InvalidVertexError(DbfsError, ValueError):
    """A vertex id is negative, past the last vertex, or not in the graph."""


class InvalidVertexTypeError(DbfsError, TypeError):
    """A vertex id is not an integer (a float, a bool, a string)."""


class InvalidOptionError(DbfsError, ValueError):
    """An option has a value that is not one of its choices; the message lists them."""


class DirectedGraphError(DbfsError, ValueError):
    """The graph is directed, and what was asked for means something in undirected graphs only."""


class EdgeInputError(DbfsError, ValueError):
    """Edges given as arrays or a matrix are malformed: shapes, dtypes or ids."""


class FormatError(DbfsError, ValueError):
    """A file is not what its format promises; the message names the file and, where there is one, the line."""


class TruncatedFileError(FormatError):
    """A file ends before its content does: empty, cut, or with fewer edges than its header says."""


class MissingFileError(DbfsError, FileNotFoundError):
    """A file to read does not exist."""


class OutputError(DbfsError, OSError):
    """A file can't be written: the folder refuses it, or the disk is full."""


class GraphTooLargeError(DbfsError, MemoryError):
    """The graph won't fit: the message has the bytes (or ids) needed and the bytes (or ids) there."""


class NoWorkersError(DbfsError, TimeoutError):
    """The cluster did not have the workers asked for within the configured time."""


class VersionMismatchError(DbfsError, RuntimeError):
    """The scheduler or a worker has no dbfs, or another version than the client; the message names it."""


class WorkerLostError(DbfsError, ConnectionError):
    """A worker that held a rank of the graph is gone; the message names the rank."""


class DeadlineExceededError(DbfsError, TimeoutError):
    """A run or build took longer than its deadline; the message names rank, level and phase."""


class RunCancelledError(DbfsError, InterruptedError):
    """A run was cancelled, by ``run.cancel()`` or because its client is gone."""


class RunAbortedError(DbfsError, RuntimeError):
    """A run ended because another rank failed; the message names the rank that failed first, and why."""


class GraphNotFoundError(DbfsError, LookupError):
    """No graph has that name (the message has the names there are), or it was unloaded."""


class NameTakenError(DbfsError, ValueError):
    """A graph of that name is in the cluster, or being built."""


class RunNotFoundError(DbfsError, LookupError):
    """No run with that id waits or is under way."""


class ExchangeUnavailableError(DbfsError, OSError):
    """Ranks can't exchange this way: on different hosts, in different containers, or for lack of a package."""


class BackendUnavailableError(DbfsError, RuntimeError):
    """A worker can't compute on the device asked for; the message names the rank and what is missing there."""


class MissingPackageError(DbfsError, ImportError):
    """An optional package is not installed; the message has the extra that brings it."""


class StaleRunError(DbfsError, RuntimeError):
    """A phase was repeated or came out of order: wrong run id, level or phase. The run ends, no label is wrong."""


class PlanError(DbfsError, ValueError):
    """A benchmark plan is not as it should be; the message has the file, the key and what would be right."""


class ClientError(DbfsError, TypeError):
    """The object given as client cannot be used: not a distributed.Client, or an asynchronous one."""


class ValidationError(DbfsError, AssertionError):
    """A result breaks a rule of breadth-first search; the message names the rules, vertices and ranks."""


class ResultReleasedError(DbfsError, RuntimeError):
    """RankLabels were asked for after the result or its graph was released."""


def outside(name: str, source: int, target: int, n: int) -> InvalidVertexError:
    """The error of an edge with an id that is no vertex; ``name`` is the edge list's."""
    return InvalidVertexError(f"{name}: edge ({source}, {target}) has an id outside 0..{n - 1} (n = {n})")
