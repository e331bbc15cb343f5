"""The hosts of a gang: which ranks share memory, and the identity of a worker's host.

The lowest rank of a host is its *envoy*: it exchanges with the envoys of the other hosts what all ranks of the two
hosts send each other.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from dbfs_workers.base.tokens import process_space


@dataclass(frozen=True)
class Hosts:
    """The hosts of a gang.

    Attributes:
        of_ranks: the host of each rank; hosts are numbered from 0 in the order of their envoys.
    """

    of_ranks: tuple[int, ...]

    @classmethod
    def by_identity(cls, identities: Sequence[str]) -> "Hosts":
        """Return the hosts of ranks whose workers have these identities."""
        numbers: dict[str, int] = {}
        return cls(tuple(numbers.setdefault(identity, len(numbers)) for identity in identities))

    @classmethod
    def one(cls, p: int) -> "Hosts":
        """Return one host with all ``p`` ranks."""
        return cls((0,) * p)

    @classmethod
    def apart(cls, p: int) -> "Hosts":
        """Return a host for each of ``p`` ranks."""
        return cls(tuple(range(p)))

    @classmethod
    def even(cls, p: int, count: int) -> "Hosts":
        """Return ``count`` hosts, at most ``p``, with nearly as many of ``p`` consecutive ranks each."""
        return cls(tuple(rank * min(count, p) // p for rank in range(p)))

    @property
    def count(self) -> int:
        """Number of hosts."""
        return max(self.of_ranks) + 1

    @property
    def envoys(self) -> tuple[int, ...]:
        """The envoy of each host."""
        return tuple(self.of_ranks.index(host) for host in range(self.count))

    def ranks(self, host: int) -> tuple[int, ...]:
        """Return the ranks of a host, in ascending order."""
        return tuple(rank for rank, other in enumerate(self.of_ranks) if other == host)

    def envoy_of(self, rank: int) -> int:
        """Return the envoy of a rank's host."""
        return self.of_ranks.index(self.of_ranks[rank])

    def carriers(self, rank: int) -> tuple[int, ...]:
        """Return, for each peer of a rank, the rank of the same host that the peer's messages come from.

        Peers on the same host are their own carriers; for all others it is the host's envoy.
        """
        own, envoy = self.of_ranks[rank], self.envoy_of(rank)
        return tuple(peer if host == own else envoy for peer, host in enumerate(self.of_ranks))


def identity(name: str) -> str:
    """Return the identity of this process's host: processes with the same identity can share memory.

    Processes open each other's memory through ``/proc``. So they must run under one kernel, see the same process ids
    and run as the same user. ``name`` separates them further.
    """
    space = process_space() or f"{socket.gethostname()}/unknown"
    return f"{name}/{space}/{os.geteuid()}"
