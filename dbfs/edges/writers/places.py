"""The folders and URLs that the configuration allows workers to write to (``dbfs.write.folders``)."""

import os
from collections.abc import Iterable
from pathlib import Path

from dbfs import config
from dbfs.errors import InvalidOptionError


def require_listed(path: str) -> None:
    """Refuse a path or URL that is not below a folder in this process's list. The value ``auto`` allows any here.

    Raises:
        InvalidOptionError: no folder in the list is above the path, or the value is neither a list nor ``auto``.
    """
    allowed = _listed()
    if allowed is not None and not any(_is_below(path, folder) for folder in allowed):
        raise InvalidOptionError(f"{path}: dbfs.write.folders has only {_words(allowed)}; choose a folder below these")


def require_writable(path: str, *, shared: bool) -> None:
    """Refuse a path or URL to which the workers of a cluster should not write, by this client's configuration.

    Args:
        path: absolute path or URL.
        shared: whether other programs may use the cluster. With ``auto``, nothing is written for such a cluster.

    Raises:
        InvalidOptionError: see ``require_listed``.
    """
    require_listed(path)
    if shared and _listed() is None:
        raise InvalidOptionError(
            f"{path}: a cluster that this program did not start writes only below the folders in dbfs.write.folders; "
            "set that in the configuration of client and workers, such as [/data/graphs, s3://bucket/graphs]"
        )


def _listed() -> list[str] | None:
    """Return the configured list; None for ``auto``."""
    value = config.get("write.folders")
    if value == "auto":
        return None
    folders = [value] if isinstance(value, str) else value
    right = isinstance(folders, list | tuple) and all(isinstance(one, str) and _is_absolute(one) for one in folders)
    if not right:
        raise InvalidOptionError(
            f"dbfs.write.folders: {value!r} is neither auto nor a list of absolute paths and URLs, such as [/data]"
        )
    return list(folders)


def _is_absolute(folder: str) -> bool:
    return "://" in folder or Path(folder).is_absolute()


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path or URL is a folder or lies below it; links of the file system are followed."""
    if "://" in path or "://" in folder:
        # A chain such as simplecache::s3://... writes to several places.
        plain = "://" in path and "://" in folder and "::" not in path and ".." not in path.split("/")
        return plain and f"{path}/".startswith(f"{folder.rstrip('/')}/")
    return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == os.path.realpath(folder)


def _words(folders: Iterable[str]) -> str:
    return ", ".join(folders) or "no folder"
