"""The workers' steps of saving a graph: take the folder, write the files of their ranks (``on_listed``), publish.

Each function checks the worker's own configuration first. ``dbfs.features.saved.saving`` submits them as tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dbfs.edges.writers.target import require_listed
from dbfs.errors import DbfsError, FormatError, InvalidOptionError, MissingFileError, OutputError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved import saves
from dbfs_workers.features.saved.manifest import Manifest
from dbfs_workers.features.saved.saves import Saver

T = TypeVar("T")

# Longest wait for the tasks of a failed save to notice that no client waits for them.
_END_SECONDS = 10.0
_POLL_SECONDS = 0.05


def prepare(folder: Folder, token: str, saver: Saver, replace: bool) -> bool:
    """Check that a graph may be saved in a folder, and begin the save; result as of ``saves.begin``.

    Raises:
        InvalidOptionError: the folder has a saved graph and ``replace`` is false, or has other files; or this worker's
            configuration does not allow the folder.
        FormatError: the path is that of a file.
        OutputError: the file system refuses the folder.
    """
    require_listed(folder.path)
    names = folder.names()
    others = [name for name in names if not manifests.is_ours(name)]
    if others:
        raise InvalidOptionError(f"{folder.path} has other files, such as {others[0]}; save to a folder of its own")
    if manifests.NAME in names:
        if not replace:
            raise InvalidOptionError(f"{folder.path} has a saved graph already; replace=True (--replace) replaces it")
        if not any(map(manifests.token_of, names)):
            _require_ours(folder)
    return saves.begin(folder, token, saver)


def on_listed(function: Callable[..., T], folder: Folder, *arguments: Any) -> T:
    """Check this worker's configuration, and call a function of ``dbfs_workers.features.saved.tasks`` that writes."""
    require_listed(folder.path)
    return function(folder, *arguments)


def publish(folder: Folder, token: str, manifest: Manifest, replace: bool) -> None:
    """Write the manifest, which makes the files a graph, and remove the files of the graph that was there before.

    Raises:
        OutputError: a file of the graph is not in the folder as this worker sees it, the manifest can't be written, or
            another save took this one for dead.
        InvalidOptionError: another graph was saved in the folder meanwhile, and ``replace`` is false.
    """
    require_listed(folder.path)
    saves.require_under_way(folder, token)
    for file in manifest.files:
        try:
            size = folder.size(file.name)
        except MissingFileError:
            size = -1
        if size != file.nbytes:
            # Whoever took this save for dead has removed the file.
            saves.require_under_way(folder, token)
            raise OutputError(
                f"{folder.file(file.name)} is not there as its rank wrote it. Save to a folder that all workers share"
            )
    if not saves.publish(folder, token, manifest, replace):
        raise InvalidOptionError(
            f"{folder.path} got another saved graph meanwhile; replace=True (--replace) replaces it"
        )


async def discard(folder: Folder, token: str, made: bool, dask_worker: Any) -> bool:
    """Remove what a save has written, once its tasks on this worker have ended. Clients run this on workers.

    Arguments and result as of ``withdraw``; ``dask_worker`` is given by Dask.
    """
    end = asyncio.get_running_loop().time() + _END_SECONDS
    while any(token in str(task.key) for task in dask_worker.state.all_running_tasks):
        if asyncio.get_running_loop().time() > end:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return await asyncio.to_thread(withdraw, folder, token, made)


def withdraw(folder: Folder, token: str, made: bool) -> bool:
    """Remove what a save has written, and its note; return whether the save replaced the manifest before it failed.

    Args:
        token: the token in the names of the save's files and in the keys of its tasks.
        made: whether the save made the folder, which is then removed if nothing else is in it.
    """
    published = False
    with suppress(DbfsError):
        require_listed(folder.path)
        published = saves.withdraw(folder, token)
    if made and folder.local:
        with suppress(OSError):
            Path(folder.path).rmdir()
    return published


def _require_ours(folder: Folder) -> None:
    """Refuse to replace a manifest of another program."""
    try:
        manifests.read(folder)
    except FormatError as error:
        raise InvalidOptionError(f"{error}; save to a folder of its own") from None
