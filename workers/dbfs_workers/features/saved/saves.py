"""Saves to one folder: who wins, what a reader sees, and what goes.

Any number of clients may save to a folder at once, and none waits for another.

- **The last one wins.** The names of a save's files have its token, so no save writes into another's. Its last step
  exchanges the manifest at once, so that a reader finds one whole save or the other. A save that may replace no graph
  fails in that step if there is a manifest.
- **A save has a note** in the folder, ``dbfs-save-TOKEN.json``, from before its first file until its manifest is there.
  It says which process saves, and for how long at most.
- **What neither a note nor the manifest names goes**, with the beginning and the end of each save: files of saves that
  were replaced or died. A save that fails or is refused removes its own files alone. The notes of dead saves go first:
  of those whose process has ended, as far as another process can see that, and of those whose time is over by the
  clock of the folder.
- **A save that has lost its note publishes nothing**, since its files may be gone. On a disk it writes its manifest
  beside the old one, looks for its note, and renames its manifest. Who removes a note removes that file next, and then
  reads the manifest. So either the rename came before, and the files stay, or it fails. In a store it writes its
  manifest, and then looks for its note: if that is gone, it puts the old manifest back.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dbfs_workers.base.errors import MissingFileError, OutputError
from dbfs_workers.base.folder import Folder
from dbfs_workers.base.received import decoded
from dbfs_workers.base.tokens import process_space
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.manifest import NOTE, PART, Manifest, tokens

GRACE_SECONDS: Final = 60.0
"""Seconds after the end of its time in which a save is not taken for dead."""

_MOST_BYTES: Final = 2**20


@dataclass(frozen=True)
class Saver:
    """What a note says of the client that saves.

    Attributes:
        pid: id of its process.
        started: when the process started, in the system's words; empty if the system does not say.
        space: see ``tokens.process_space``.
        seconds: longest time of the save.
    """

    pid: int
    started: str
    space: str
    seconds: float

    @classmethod
    def here(cls, seconds: float) -> Saver:
        """Return this process as a saver."""
        pid = os.getpid()
        return cls(pid, _started(pid), process_space(), seconds)

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


def begin(folder: Folder, token: str, saver: Saver) -> bool:
    """Put down the note of a save, and remove what dead saves left; return whether this made the folder.

    Raises:
        FormatError, UnreadableFileError, OutputError: the folder can't be read, made or written to.
    """
    made = folder.make()
    with folder.create(_note(token)) as file:
        file.write(json.dumps(dataclasses.asdict(saver)).encode())
    now = folder.modified(_note(token))
    for other in tokens(NOTE, folder.names()) - {token}:
        if _is_dead(folder, other, now):
            folder.remove(_note(other))
    _collect(folder)
    return made


def require_under_way(folder: Folder, token: str) -> None:
    """Raise ``OutputError`` unless a save has its note."""
    if token not in tokens(NOTE, folder.names()):
        raise OutputError(f"{folder.path}: another save took this one for dead, whose time was over; save again")


def publish(folder: Folder, token: str, manifest: Manifest, replace: bool) -> bool:
    """Exchange the manifest, and end a save; return whether it did: not if a manifest is there that may not go.

    Errors as for ``require_under_way`` and ``Folder.put``.
    """
    text, check = manifests.to_json(manifest), partial(require_under_way, folder, token)
    before = b"" if folder.local else _manifest_text(folder)
    try:
        exchanged = folder.put(manifests.NAME, text, _part(token), check, replace)
        if exchanged and not folder.local:
            _keep_or_put_back(folder, token, text, before)
    except OutputError:
        check()
        raise
    if exchanged:
        folder.remove(_note(token))
        _collect(folder)
    return exchanged


def withdraw(folder: Folder, token: str) -> bool:
    """End a save that failed, and remove its files unless the manifest names them; return whether it does.

    Raises:
        FormatError, UnreadableFileError: the folder can't be read.
    """
    folder.remove(_note(token))
    named = token.encode() in _manifest_text(folder)
    if named:
        _collect(folder)
    else:
        for name in folder.names():
            if manifests.token_of(name) == token:
                folder.remove(name)
    return named


def _keep_or_put_back(folder: Folder, token: str, text: bytes, before: bytes) -> None:
    """Put the manifest ``before`` back, unless the save has its note; errors as for ``require_under_way``."""
    try:
        require_under_way(folder, token)
    except OutputError:
        if _manifest_text(folder) == text:
            if before:
                folder.put(manifests.NAME, before, _part(token), lambda: None, True)
            else:
                folder.remove(manifests.NAME)
        raise


def _is_dead(folder: Folder, token: str, now: float) -> bool:
    """Return whether the save of a note is over, at the time ``now`` of the folder's clock."""
    name = _note(token)
    try:
        since, content = folder.modified(name), folder.content(name, _MOST_BYTES)
    except MissingFileError:
        return True
    try:
        saver: Saver = decoded(Saver, json.loads(content), folder.file(name))
    except (ValueError, RecursionError):
        # A save may die before it has written its note.
        return now - since > GRACE_SECONDS
    return saver.is_gone or now - since > saver.seconds + GRACE_SECONDS


def _collect(folder: Folder) -> None:
    """Remove the files that neither a note nor the manifest names."""
    # In this order, since a save has its note before its files, and its manifest before its note goes. A save looks for
    # its note before it renames its part; the part of a save without a note goes here.
    files = folder.names()
    for token in tokens(PART, files) - tokens(NOTE, folder.names()):
        folder.remove(_part(token))
    there, text = folder.names(), _manifest_text(folder)
    # A part that stays may still be renamed.
    kept = tokens(NOTE, there) | tokens(PART, there)
    for name in files:
        token = manifests.token_of(name)
        if token and token not in kept and token.encode() not in text:
            folder.remove(name)


def _note(token: str) -> str:
    return f"dbfs-save-{token}.json"


def _part(token: str) -> str:
    """Return the name of a save's manifest before it is published."""
    return f"manifest-{token}.json.part"


def _manifest_text(folder: Folder) -> bytes:
    """Return the text of the manifest, whole or damaged; empty if there is none."""
    try:
        return folder.content(manifests.NAME, manifests.MOST_BYTES)
    except MissingFileError:
        return b""


def _started(pid: int) -> str:
    """Return when a process started, in the system's words; ``ended`` for one whose parent has not noticed its end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]
