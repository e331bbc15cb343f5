"""What works in the process of its client only: a forked child has no use of it, and it is not sent to other processes.

A fork copies a client without the threads that the client needs. A call in the child would wait in vain for an event
loop that runs in the parent, and write to connections that the parent uses.
"""

import concurrent.futures
import os
import weakref
from typing import ClassVar, NoReturn

import distributed

from dbfs.errors import ClientError

_process = os.getpid()
# By client that this process got by a fork, the process that the client belongs to.
_owners: weakref.WeakKeyDictionary[distributed.Client, int] = weakref.WeakKeyDictionary()


def is_inherited(client: distributed.Client) -> bool:
    """Return whether a client was made before this process was forked."""
    return bool(_owners) and client in _owners


def require_own(client: distributed.Client) -> None:
    """Raise ``ClientError`` if a client was made before this process was forked."""
    if is_inherited(client):
        raise ClientError(
            f"the distributed.Client of this call belongs to process {_owners[client]}; process {_process} is a fork "
            "without the client's threads; connect in the child, and open a graph there with dbfs.open(name)"
        )


class StaysHere:
    """Base of objects that need the client of their process: none is pickled, copied, or sent to a task."""

    # Public names that are for other modules only. Completion by the tab key does not offer them.
    _inner: ClassVar[frozenset[str]] = frozenset({"elsewhere"})

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._inner]

    @property
    def elsewhere(self) -> str:
        """What to do in another process instead, for messages."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise ClientError(
            f"a {type(self).__name__} object needs the client of its process, so it is neither pickled nor copied nor "
            f"sent to a task; {self.elsewhere}"
        )

    # Dask asks for a token before it pickles an argument. An error in pickling would be logged at length, and wrapped.
    __dask_tokenize__ = __reduce__


def _after_fork() -> None:
    global _process
    for client in distributed.Client._instances:
        _owners.setdefault(client, _process)
    _process = os.getpid()
    # Dask sends large messages through a pool whose thread is not copied either: the child's own clients would wait.
    distributed.utils._offload_executor = concurrent.futures.ThreadPoolExecutor(1, "Dask-Offload")


os.register_at_fork(after_in_child=_after_fork)
