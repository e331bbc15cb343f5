"""The client that the backend uses: one that the settings name, Dask's current one, or one of its own."""

from __future__ import annotations

import os
import threading
from typing import Final

import distributed
import networkx as nx

from dbfs.cluster.connect import connect
from dbfs.errors import InvalidOptionError
from dbfs.integers import whole_count

_SETTINGS: Final = "nx.config.backends.dbfs"

_lock = threading.Lock()
# By address, clients of schedulers that the settings named; under None the client of a cluster within this process.
_clients: dict[str | None, distributed.Client] = {}


def _after_fork() -> None:
    """Forget the clients of the parent: a forked child starts others. Another thread may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)


def ranks() -> int | None:
    """Return the number of ranks that the settings ask for; None for all workers.

    Raises:
        InvalidOptionError, InvalidOptionTypeError: the setting is not a whole number of at least 1.
    """
    asked = nx.config.backends.dbfs.ranks
    return None if asked is None else whole_count(asked, f"{_SETTINGS}.ranks", 1)


def client() -> distributed.Client:
    """Return the client for the next graph.

    This is a client of ``nx.config.backends.dbfs.scheduler`` if that is set, else Dask's current client, else the
    client of a cluster within this process, which the first call starts. That cluster has CPU cores only and ends with
    the process. Neither client that is started here becomes Dask's current one.

    Raises:
        InvalidOptionError: a setting has an impossible value.
        NoWorkersError: the scheduler did not answer, or has no workers.
    """
    address = nx.config.backends.dbfs.scheduler
    if address is not None and not isinstance(address, str):
        raise InvalidOptionError(f"{_SETTINGS}.scheduler must be an address or None, not {address!r}")
    current = _current() if address is None else None
    if current is not None:
        return current
    wanted = ranks() or 1
    with _lock:
        known = _clients.get(address)
        if known is not None and known.status == "running":
            if address is not None or len(known.cluster.workers) >= wanted:
                return known
            known.close()
        if address is not None:
            _clients[address] = connect(address, set_as_default=False)
        else:
            _clients[None] = connect(
                n_workers=wanted,
                backend="cpu",
                processes=False,
                dashboard_address=None,
                set_as_default=False,
            )
        return _clients[address]


def _current() -> distributed.Client | None:
    """Return Dask's current client; None if there is none that a plain call can use."""
    try:
        current = distributed.Client.current()
    except ValueError:
        return None
    return None if current.asynchronous or current.status != "running" else current
