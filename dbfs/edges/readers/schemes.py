"""The schemes of URLs that the configuration allows to read (``dbfs.read.schemes``)."""

from collections.abc import Iterable

from dbfs import config
from dbfs.errors import InvalidOptionError

_LOCAL = ("file", "local")


def schemes(path: str) -> list[str]:
    """Return the schemes of a path or URL; ``file`` for a path. fsspec's chains (``zip://a::s3://b``) have several."""
    if "://" not in path:
        return ["file"]
    # The first part of a chain may be a scheme alone: ``simplecache::s3://bucket/file``.
    return [part.partition("://")[0].lower() for part in path.split("::")]


def require_listed(path: str) -> None:
    """Refuse a file whose scheme is not in this process's list. The value ``auto`` allows any scheme here.

    Raises:
        InvalidOptionError: a scheme is not in the list, or the value is neither a list nor ``auto``.
    """
    allowed = _listed()
    if allowed is not None:
        _require(path, allowed, "dbfs.read.schemes has")


def require_readable(path: str, *, shared: bool) -> None:
    """Refuse a file that the workers of a cluster should not read, by this client's configuration.

    Args:
        path: path or URL of the file.
        shared: whether other programs may use the cluster. With ``auto``, such a cluster reads local files only.

    Raises:
        InvalidOptionError: see ``require_listed``.
    """
    require_listed(path)
    if shared and _listed() is None:
        _require(path, _LOCAL, "a cluster that this program did not start reads")


def _listed() -> list[str] | None:
    """Return the configured list, in lower case; None for ``auto``."""
    value = config.get("read.schemes")
    if value == "auto":
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidOptionError(f"dbfs.read.schemes: {value!r} is neither auto nor a list such as [file, https]")
    return [name.lower() for name in names]


def _require(path: str, allowed: Iterable[str], rule: str) -> None:
    refused = [scheme for scheme in schemes(path) if scheme not in allowed]
    if refused:
        raise InvalidOptionError(
            f"{path}: {rule} only {', '.join(allowed)}, not {', '.join(refused)}; add the scheme to dbfs.read.schemes "
            "of client and workers, or copy the file to a disk that all of them see"
        )
