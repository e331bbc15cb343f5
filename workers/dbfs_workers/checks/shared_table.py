"""The words of all ranks' labels in memory that the ranks of one host share, for a validation.

Each rank writes the words of its own rows and reads the words of all rows. So the host holds each word once: 8 bytes a
row for each rank.
"""

import fcntl
import mmap
import os
import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tokens import Token, issue


@dataclass(frozen=True)
class SharedTable:
    """A table of one word a vertex. Picklable. The memory ends with the maker's object and the last mapping.

    Attributes:
        token: the token of the maker's file, which is the memory.
        graph_id: the graph.
        size: number of words.
    """

    token: Token
    graph_id: str
    size: int

    @classmethod
    def make(cls, stripe: Stripe, graph_id: str) -> "SharedTable":
        """Return a table of zeros for a graph's vertices.

        Raises:
            ExchangeUnavailableError: the system has no memfd.
        """
        token = issue(graph_id)
        table = cls(token, graph_id, stripe.n)
        weakref.finalize(table, os.close, token.descriptor)
        os.ftruncate(token.descriptor, max(1, 8 * stripe.n))
        fcntl.fcntl(token.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return table

    def words(self) -> NDArray[np.uint64]:
        """Map the table: uint64[n].

        Raises:
            ExchangeUnavailableError: the maker is on another host or has released the table.
        """
        descriptor = self.token.open(self.graph_id, f"the labels of process {self.token.pid} can't be mapped")
        try:
            memory = mmap.mmap(descriptor, max(1, 8 * self.size))
        finally:
            os.close(descriptor)
        # The array keeps the mapping.
        return np.frombuffer(memory, np.uint64, self.size)
