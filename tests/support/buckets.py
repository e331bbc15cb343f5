"""A stand-in for object stores: buckets in this process's memory behind the URLs ``s3://`` and ``gs://``.

As of s3fs and gcsfs, there are no folders but the beginnings of names, listings are cached, and an object appears when
its stream is closed. The errors of a bucket without permission are those of these libraries.
"""

from importlib import import_module
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

SECRET = "secret"
"""Name of a bucket without permission to read or to write."""


class _Bucket(MemoryFileSystem):  # type: ignore[misc]
    """Buckets of one scheme."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    root_marker = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        inner = path.removeprefix(f"{cls.protocol}://").strip("/")
        return f"/{inner}" if inner else ""

    def unstrip_protocol(self, name: str) -> str:
        return f"{self.protocol}://{name.strip('/')}"

    def refuse(self, path: str) -> None:
        raise NotImplementedError

    def _checked(self, path: str) -> str:
        inner = self._strip_protocol(path)
        if inner.split("/")[1:2] == [SECRET]:
            self.refuse(inner)
        return inner

    def info(self, path: str, **given: Any) -> Any:
        return super().info(self._checked(path), **given)

    def ls(self, path: str, detail: bool = True, **given: Any) -> Any:
        return super().ls(self._checked(path), detail, **given)

    def find(self, path: str, *rest: Any, **given: Any) -> Any:
        return super().find(self._checked(path), *rest, **given)

    def _open(self, path: str, mode: str = "rb", *rest: Any, **given: Any) -> Any:
        return super()._open(self._checked(path), mode, *rest, **given)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._checked(path)


class S3(_Bucket):
    """As of s3fs."""

    protocol = "s3"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def refuse(self, path: str) -> None:
        raise PermissionError("Access Denied")


class GS(_Bucket):
    """As of gcsfs."""

    protocol = "gs"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def refuse(self, path: str) -> None:
        raise OSError(f"Forbidden: {path}\n403 the caller does not have storage.objects.get access")


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins, empty, in the place of s3fs and gcsfs, in this process until the test ends."""
    registry = import_module("fsspec.registry")
    for kind in (S3, GS):
        kind.store.clear()
        monkeypatch.setitem(registry._registry, kind.protocol, kind)
