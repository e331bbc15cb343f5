"""Planted faults: small changes of the product by text, each with the tests that have to fail.

``plant`` changes a file of a copy of the checkout and removes the compiled kernels that the change concerns: those of
the file, and of all modules that import it, since Numba notices a change of a kernel's own file only. After the tests
the file and the compiled kernels are as before, so that the next fault finds the copy sound.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Seconds of one test. A test that hangs has caught the fault, but late.
_TEST_SECONDS = 60
# Seconds of all tests of a fault: the kernels that it concerns are compiled anew.
_ALL_SECONDS = 400
_COPIED = (
    "benchmarks",
    "dbfs",
    "workers",
    "tests",
    "configs",
    "examples",
    "pyproject.toml",
    "dbfs_networkx_info.py",
    "README.md",
)


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        file: the file, from the root of the checkout.
        old: text that the file has exactly once.
        new: what takes its place.
        tests: tests, or files of tests, of which at least one fails with the fault, as pytest names them.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()!r} -> {self.new.strip()!r}"

    def problem(self, root: Path = ROOT) -> str:
        """Return why the fault can't be planted; empty if it can."""
        path = root / self.file
        text = path.read_text() if path.is_file() else ""
        found = text.count(self.old)
        if found != 1:
            return f"{self}: the file has the text {found} times, not once"
        if path.suffix == ".py" and not _is_python(text.replace(self.old, self.new)):
            return f"{self}: the change is not Python"
        for test in self.tests:
            file, _, name = test.partition("::")
            named = f"def {name.partition('[')[0]}(" if name else ""
            if not (root / file).is_file() or named not in (root / file).read_text():
                return f"{self}: there is no test {test}"
        return "" if self.tests else f"{self}: no test is named"


@dataclass(frozen=True)
class Outcome:
    """What the tests of a fault said.

    Attributes:
        caught: whether a test failed, or the tests could not run.
        hung: whether a test failed by its timeout only.
        output: the end of the tests' output.
    """

    caught: bool
    hung: bool
    output: str


def copy_checkout(target: Path) -> None:
    """Copy what tests need, with the compiled kernels: Numba accepts these for files of the same time and size."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name)
        else:
            shutil.copy2(source, target / name)


@contextlib.contextmanager
def planted(fault: Fault, copy: Path) -> Iterator[None]:
    """Plant the fault in a copy of the checkout for the time of the block."""
    path = copy / fault.file
    before, times = path.read_text(), path.stat()
    concerned = [cache for module in _importers(path, copy) for cache in _caches(module)]
    kept = {cache: cache.read_bytes() for cache in concerned}
    for cache in concerned:
        cache.unlink()
    path.write_text(before.replace(fault.old, fault.new))
    try:
        yield
    finally:
        for module in _importers(path, copy):
            for cache in _caches(module):
                cache.unlink()
        path.write_text(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        for cache, content in kept.items():
            cache.write_bytes(content)


def run_tests(tests: list[str] | tuple[str, ...], copy: Path) -> Outcome:
    """Run tests in a copy of the checkout until one fails."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'workers'}"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--timeout={_TEST_SECONDS}"]
    process = subprocess.Popen(
        [*command, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_ALL_SECONDS)
    except subprocess.TimeoutExpired:
        return Outcome(True, True, "no end of the tests")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    # A fault may also end the process, or keep a module from being imported.
    caught = process.returncode != 0
    return Outcome(caught, caught and "Failed: Timeout" in output, output[-2000:])


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _importers(path: Path, copy: Path) -> set[Path]:
    """Return the file, and all files with kernels that import it, some of them by way of others."""
    workers = copy / "workers"
    if path.suffix != ".py" or not path.is_relative_to(workers):
        return {path}
    sources = {file: file.read_text() for file in workers.rglob("*.py")}
    found, new = {path}, [path]
    while new:
        parent, _, stem = ".".join(new.pop().relative_to(workers).with_suffix("").parts).rpartition(".")
        mention = re.compile(
            rf"from {re.escape(f'{parent}.{stem}')} import|from {re.escape(parent)} import .*\b{stem}\b"
        )
        for file, text in sources.items():
            if file not in found and "dbfs_workers.base.jit" in text and mention.search(text):
                found.add(file)
                new.append(file)
    return found


def _caches(module: Path) -> list[Path]:
    """Return the compiled kernels of a module."""
    return list((module.parent / "__pycache__").glob(f"{module.stem}.*.nb[ic]"))
