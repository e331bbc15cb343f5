"""Runs the tests of what differs from main: ``python -m tests.support.quick``, for ``make quick``.

A test file is chosen if it changed, or if it imports a module that changed, itself or by helpers in ``tests/support``.
Where no test imports a changed file (a CUDA source, a module that others call), the tests of its room are chosen, which
lie in the same folder below ``tests/``, those of faces in ``tests/faces``. No test compiles for GPUs.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_COMPILING = "tests/search/cuda/test_compile.py"


def changed_files() -> list[str]:
    """Return the files that differ from the last commit that is also on main, by their paths."""
    base = _git("merge-base", "HEAD", "main").strip()
    return [*_git("diff", "--name-only", base).splitlines(), *_git("ls-files", "-o", "--exclude-standard").splitlines()]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def affected_tests(changed: Iterable[str], root: Path) -> list[str]:
    """Return the test files of changed files, by their paths below a checkout's folder."""

    def file_of(module: str) -> str | None:
        below = module.replace(".", "/")
        places = [f"{top}{below}{end}" for top in ("", "workers/") for end in (".py", "/__init__.py")]
        return next((place for place in places if (root / place).is_file()), None)

    @cache
    def imports(path: str) -> frozenset[str]:
        """Return the files that a file imports, and those that the helpers among them import."""
        names: set[str] = set()
        for node in ast.walk(ast.parse((root / path).read_text())):
            if isinstance(node, ast.Import):
                names.update(each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                # A name may be a module of the package.
                names.update(
                    name if file_of(name := f"{node.module}.{each.name}") else node.module for each in node.names
                )
        found = {file for name in names if (file := file_of(name))}
        helpers = [file for file in found if file.startswith("tests/support/") and file != path]
        return frozenset(found.union(*(imports(helper) for helper in helpers)))

    tests = [path.relative_to(root).as_posix() for path in sorted((root / "tests").rglob("test_*.py"))]
    chosen: set[str] = set()
    for file in changed:
        own = {test for test in tests if test == file or file in imports(test)}
        if not own and file.endswith((".py", ".cu", ".cuh")):
            room = re.sub("^(dbfs|workers/dbfs_workers)/", "", Path(file).parent.as_posix())
            room = re.sub("^(cli|dashboard|display|graph500|networkx)", r"faces/\1", room)
            while room and not (root / "tests" / room).is_dir():
                room = room.rpartition("/")[0]
            own = {test for test in tests if room and test.startswith(f"tests/{room}/")}
        chosen |= own
    return sorted(chosen - {_COMPILING})


if __name__ == "__main__":
    files = affected_tests(changed_files(), ROOT)
    print(f"{len(files)} test files of what differs from main", *files, sep="\n  ", flush=True)
    options = ["-q", "-n", "2", "--dist", "worksteal", "-m", "not full"]
    code = subprocess.call([sys.executable, "-m", "pytest", *options, *files], cwd=ROOT) if files else 0
    # Of the files, no test may be of the first size.
    sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
