"""The lock of a saved graph's folder: one save at a time, and a way on after the death of a client that saved.

A lock is a file ``dbfs-save-N.lock`` that says which client saves. One save alone can create a file of that name, and
the lock with the largest N counts. A save that finds the lock of a dead client creates the next one. So a lock that
counts is removed by its own save only.

A silent client may be dead or slow, and no other process can tell. So a save may lose its lock and go on. Such a save
must not damage the next save's graph:

- A save looks at its lock immediately before its manifest takes the place of the old one. If another lock counts, the
  save fails.
- On a disk that step renames a file with the save's token. The next save first removes this file, and then reads the
  manifest. Either the rename came before, and the next save finds its manifest; or the rename fails.
- In a store the look and the step are two requests. A client that is silent for ``SILENT_SECONDS`` just between them
  may replace the manifest of the next save.

A save removes files by their tokens only: those of the dead save whose lock it found, and, when its own manifest is
there, those of the manifest that it replaced. A file that the manifest in the folder names is never removed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dbfs_workers.base.errors import FolderBusyError, MissingFileError, OutputError
from dbfs_workers.base.folder import Folder
from dbfs_workers.base.received import Natural, decoded
from dbfs_workers.base.text import printable
from dbfs_workers.base.tokens import process_space
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.manifest import Manifest

BEAT_SECONDS: Final = 5.0
"""Seconds from one sign of life of a client that saves to the next."""

SILENT_SECONDS: Final = 60.0
"""Seconds without a sign of life after which a client is taken for dead."""

_NAME = re.compile(r"dbfs-save-(\d+)\.lock")
_MOST_BYTES: Final = 2**20

Sign = tuple[int, int, bytes]
"""What a lock looks like: its number, the time of its file, the content. A client that lives changes it."""


@dataclass(frozen=True)
class Saver:
    """A client that saves.

    Attributes:
        token: the token of the save.
        host: name of the client's host.
        pid: id of its process.
        started: when the process started, in the system's words; empty if the system does not say.
        space: see ``tokens.process_space``.
        since: when the save began, in words.
    """

    token: str
    host: str
    pid: Natural
    started: str
    space: str
    since: str

    @classmethod
    def here(cls, token: str) -> Saver:
        """Return this process as the saver with a token."""
        pid = os.getpid()
        since = time.strftime("%F %T UTC", time.gmtime())
        return cls(token, socket.gethostname(), pid, _started(pid), process_space(), since)

    def __str__(self) -> str:
        return printable(f"process {self.pid} on {self.host}, which saves there since {self.since}")

    @property
    def is_gone(self) -> bool:
        """Whether this process can see that the saver's process has ended."""
        if not self.space or self.space != process_space():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            # The process is another user's, or the number is none of a process.
            pass
        started = _started(self.pid)
        return bool(started and self.started) and started != self.started


@dataclass(frozen=True)
class Lock:
    """A lock.

    Attributes:
        number: the lock's number.
        saver: the client that has it.
        leftovers: tokens of files that go once the save is over, unless the manifest names them.
        made: whether the save made the folder.
        beat: the latest sign of life in a store, in seconds since the epoch.
    """

    number: Natural
    saver: Saver
    leftovers: tuple[str, ...]
    made: bool
    beat: float

    def to_json(self) -> bytes:
        """Return the content of the lock's file."""
        return json.dumps(dataclasses.asdict(self)).encode()


@dataclass(frozen=True)
class Busy:
    """Why a lock was not taken.

    Attributes:
        who: the client that has the folder, in words.
        sign: what its lock looks like; None if the lock has just changed.
    """

    who: str
    sign: Sign | None


_CHANGED: Final = Busy("another client", None)


@dataclass(frozen=True)
class _SeenLock:
    """A lock as it was found; ``lock`` is None if its content can't be read, as of a save that died early."""

    sign: Sign
    lock: Lock | None

    @classmethod
    def at(cls, folder: Folder, number: int) -> _SeenLock:
        name = _name(number)
        stamp, content = folder.stamp(name), folder.content(name, _MOST_BYTES)
        try:
            lock = decoded(Lock, json.loads(content), folder.file(name))
        except (ValueError, RecursionError):
            lock = None
        return cls((number, stamp, content), lock)

    @property
    def token(self) -> str:
        """The token of the save; empty if it can't be read."""
        return "" if self.lock is None else self.lock.saver.token

    @property
    def tokens(self) -> set[str]:
        """The tokens of the files that a dead save leaves."""
        return set() if self.lock is None else {self.token, *self.lock.leftovers}


def take(folder: Folder, saver: Saver, silent: Sign | None) -> Lock | Busy:
    """Take the lock of a folder, unless a client has it that may live. Make the folder if needed.

    Args:
        saver: the client that takes the lock.
        silent: what the lock of a client looks like that gave no sign of life for ``SILENT_SECONDS``; None if no
            client was silent for so long.

    Raises:
        FormatError, UnreadableFileError, OutputError: the folder can't be read, made or written to.
    """
    try:
        there = [_SeenLock.at(folder, number) for number in _numbers(folder.names())]
    except MissingFileError:
        return _CHANGED
    if there and there[-1].sign != silent and not (there[-1].lock and there[-1].lock.saver.is_gone):
        return Busy("another client" if there[-1].lock is None else str(there[-1].lock.saver), there[-1].sign)
    dead = {token for seen in there for token in seen.tokens}
    number = there[-1].sign[0] + 1 if there else 1
    leftovers = tuple(sorted(dead | _replaced(folder)))
    lock = Lock(number, saver, leftovers, folder.make(), time.time())
    if not folder.claim(_name(number), lock.to_json()):
        return _CHANGED
    for token in dead:
        folder.remove(_part(token))
    if not _is_as_seen(folder, there, number, dead):
        folder.remove(_name(number))
        return _CHANGED
    clean(folder, dead)
    for seen in there:
        folder.remove(_name(seen.sign[0]))
    return lock


def renew(folder: Folder, lock: Lock) -> None:
    """Give a sign of life. Errors as for ``require_held`` and ``Folder.renew``."""
    require_held(folder, lock)
    folder.renew(_name(lock.number), dataclasses.replace(lock, beat=time.time()).to_json())


def require_held(folder: Folder, lock: Lock) -> None:
    """Raise ``FolderBusyError`` unless a lock counts."""
    token = lock.saver.token
    with suppress(MissingFileError):
        if max(_numbers(folder.names()), default=0) == lock.number and _SeenLock.at(folder, lock.number).token == token:
            return
    raise FolderBusyError(
        f"{folder.path}: another save took the folder over, because this client gave no sign of life for "
        f"{SILENT_SECONDS:g} s; save again"
    )


def publish(folder: Folder, lock: Lock, manifest: Manifest) -> None:
    """Write the manifest, remove the files of the graph that was there before, and give the lock back.

    Errors as for ``require_held`` and ``Folder.put``.
    """
    replaced = _replaced(folder)
    try:
        part, check = _part(lock.saver.token), partial(require_held, folder, lock)
        folder.put(manifests.NAME, manifests.to_json(manifest), part, check)
    except OutputError:
        require_held(folder, lock)
        raise
    clean(folder, {*replaced, *lock.leftovers})
    withdraw(folder, lock.saver.token)


def withdraw(folder: Folder, token: str) -> bool:
    """Give the lock of a save back, and remove the save's files unless the manifest names them; return whether it does.

    Raises:
        FormatError, UnreadableFileError: the folder can't be read.
    """
    tokens = {token}
    # The lock first: a manifest that is just being written must not appear after its files are gone.
    for number in _numbers(folder.names()):
        with suppress(MissingFileError):
            seen = _SeenLock.at(folder, number)
            if seen.token == token:
                tokens |= seen.tokens
                folder.remove(_name(number))
    folder.remove(_part(token))
    return token not in clean(folder, tokens)


def clean(folder: Folder, tokens: Iterable[str]) -> set[str]:
    """Remove the files with some tokens, except those that the manifest names; return the tokens whose files went."""
    text = _manifest_text(folder)
    gone = {token for token in tokens if token.encode() not in text}
    for name in folder.names() if gone else ():
        if manifests.token_of(name) in gone:
            folder.remove(name)
    return gone


def _is_as_seen(folder: Folder, there: list[_SeenLock], number: int, dead: Iterable[str]) -> bool:
    """Return whether the locks beside a new one are those that were seen, and no dead save can publish any more.

    A lock of the same number may be of another client by now, if two saves were faster than this one.
    """
    names = folder.names()
    if not {_part(token) for token in dead}.isdisjoint(names):
        return False
    signs = {seen.sign for seen in there}
    try:
        return all(_SeenLock.at(folder, other).sign in signs for other in _numbers(names) if other != number)
    except MissingFileError:
        return False


def _name(number: int) -> str:
    return f"dbfs-save-{number}.lock"


def _part(token: str) -> str:
    """Return the name of a save's manifest until the manifest is complete."""
    return f"manifest-{token}.json.part"


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def _manifest_text(folder: Folder) -> bytes:
    """Return the text of the manifest, whole or damaged; empty if there is none."""
    try:
        return folder.content(manifests.NAME, manifests.MOST_BYTES)
    except MissingFileError:
        return b""


def _replaced(folder: Folder) -> set[str]:
    """Return the tokens of the files that the manifest names."""
    text = _manifest_text(folder)
    return {token for name in folder.names() if (token := manifests.token_of(name)) and token.encode() in text}


def _started(pid: int) -> str:
    """Return when a process started, in the system's words; ``ended`` for one whose parent has not noticed its end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]
