"""Tokens: proof that a handle of another process's memory is of this host, of a process that lives, and of this graph.

A handle names memory by numbers: a process id and a file descriptor, or an address on a GPU. On another host, after a
restart or for another graph the same numbers may name the memory of a stranger. So the owner of the memory holds a
nameless file (memfd), whose label has a digest of the graph's id and a random number. A peer reads that label through
``/proc/<pid>/fd`` before it opens or maps anything. Reading a label touches no memory of the owner.

The label is visible to processes of the same user in the same process namespace, as the memory itself is.
"""

import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError

TOKEN_WORDS = 3
"""Words of ``Token.words``."""


def process_space() -> str:
    """Return a name of the processes that know each other by their ids; empty if the system does not say.

    They run under one kernel, which has not restarted, and in one namespace of process ids.
    """
    try:
        system = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{system}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


@dataclass(frozen=True)
class Token:
    """Where a peer finds the owner's label, and what stands there. Picklable.

    Attributes:
        pid: process id of the owner.
        descriptor: the owner's file descriptor of the file.
        label: the label that the file has.
    """

    pid: int
    descriptor: int
    label: str

    @property
    def path(self) -> Path:
        """Path of the file while the owner has it open."""
        return Path(f"/proc/{self.pid}/fd/{self.descriptor}")

    def words(self) -> NDArray[np.int64]:
        """Return int64[TOKEN_WORDS]: the numbers that name the file, and the random number of its label."""
        drawn = np.frombuffer(bytes.fromhex(self.label[-32:]), np.int64)
        return np.append(np.int64(self.pid << 32 | self.descriptor), drawn)

    @classmethod
    def of_words(cls, words: NDArray[np.int64], graph_id: str) -> "Token | None":
        """Return the token that was issued for a graph and written as ``words``; None if the words are zeros."""
        if words[0] == 0:
            return None
        label = f"{_prefix(graph_id)}{words[1:].tobytes().hex()}"
        return cls(int(words[0]) >> 32, int(words[0]) & 0xFFFFFFFF, label)

    def verify(self, graph_id: str, what: str) -> None:
        """Check that the owner lives on this host and has the file open; ``what`` begins the message.

        Raises:
            ExchangeUnavailableError: the owner is on another host, in another container, runs as another user or has
                ended, or the token is of another graph.
        """
        if not self.label.startswith(_prefix(graph_id)):
            raise ExchangeUnavailableError(f"{what}: its token is of another graph")
        self.require_label(self.path, what)

    def open(self, graph_id: str, what: str) -> int:
        """Open the owner's file to read and write, and return the descriptor; ``what`` begins the message.

        Errors as for ``verify``, and ``ExchangeUnavailableError`` if the owner has closed the file.
        """
        self.verify(graph_id, what)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise ExchangeUnavailableError(f"{what}: {error}") from error
        try:
            # The owner may have closed the file since, and its descriptor may be another file.
            self.require_label(Path(f"/proc/self/fd/{descriptor}"), what)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def require_label(self, link: Path, what: str) -> None:
        """Raise ``ExchangeUnavailableError`` unless a link of ``/proc`` is to the owner's file."""
        try:
            found = str(link.readlink())
        except OSError as error:
            raise ExchangeUnavailableError(f"{what}: {error}") from error
        # Linux adds that the file has no name.
        if found.removesuffix(" (deleted)") != f"/memfd:{self.label}":
            raise ExchangeUnavailableError(f"{what}: {self.path} is another file")


def issue(graph_id: str) -> Token:
    """Make a nameless, empty file of this process and return its token. The file ends with its descriptor.

    Raises:
        ExchangeUnavailableError: the system has no memfd.
    """
    if not hasattr(os, "memfd_create"):
        raise ExchangeUnavailableError("memory can be shared between processes on Linux only (memfd)")
    label = f"{_prefix(graph_id)}{secrets.token_hex(16)}"
    descriptor = os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    # Nobody but the owner's user, even where a process of another user may look into /proc/<pid>.
    os.fchmod(descriptor, 0o600)
    return Token(os.getpid(), descriptor, label)


def _prefix(graph_id: str) -> str:
    # The kernel takes 249 bytes of a label, and an id may have more.
    return f"dbfs-{hashlib.blake2b(graph_id.encode(), digest_size=8).hexdigest()}-"
