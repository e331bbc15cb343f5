"""Programs of kernels and the emulator, compiled by g++ once per text, into the system's temporary files."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from dbfs_workers.base.kernel_packages import PACKAGE
from dbfs_workers.search.cuda import words
from dbfs_workers.search.cuda.source import included

COMPILER: Final = shutil.which("g++") or ""
needs_compiler = pytest.mark.skipif(not COMPILER, reason="g++ is not installed")
# Fibers jump between stacks. Some systems' compilers add checks that end the process at such a jump.
_OPTIONS: Final = (
    *("-std=c++17", "-O1", "-shared", "-fPIC", "-w"),
    *("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0", "-fno-stack-protector"),
)
# NVRTC's front end has an intrinsic for the address of a field; a C++ compiler has ``offsetof``.
_NVRTC_OFFSET: Final = "((u64)__INTADDR__(&((type*)0)->field))"
_FOLDERS: Final = (Path(__file__).parent, PACKAGE)


def kept() -> Path:
    """Return the folder, among the system's temporary files, of what tests compile: named by all that goes into it."""
    folder = Path(tempfile.gettempdir()) / f"dbfs-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def for_cpu(header: str) -> str:
    """Return a header that ``structs.header`` made for NVRTC as one for this compiler."""
    assert _NVRTC_OFFSET in header
    return header.replace(_NVRTC_OFFSET, "offsetof(type, field)")


def compiled(*files: str, made: Mapping[str, str] | None = None, options: tuple[str, ...] = ()) -> Path:
    """Return the shared library of a program.

    Args:
        files: the program's files, as named in ``#include``: of this folder, of the package, or of ``made``.
        made: texts in place of files.
        options: options of the compiler, beside those of all programs.
    """
    made = made or {}
    program = "".join(f'#include "{file}"\n' for file in files)

    def read(name: str) -> str:
        return made[name] if name in made else next(at / name for at in _FOLDERS if (at / name).exists()).read_text()

    texts = [f"{name}\0{text}" for name, text in sorted(included(program, read).items())]
    key = hashlib.sha256("\0".join([program, *texts, *_OPTIONS, *options]).encode()).hexdigest()[:24]
    built = kept() / f"{key}.so"
    if not built.exists():
        with tempfile.TemporaryDirectory(dir=built.parent) as work:
            for name, text in {**made, "program.cpp": program}.items():
                (Path(work) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(work) / name).write_text(text)
            includes = [f"-I{at}" for at in (work, *_FOLDERS)]
            given, library = Path(work, "program.cpp"), Path(work, "made.so")
            subprocess.run([COMPILER, *_OPTIONS, *options, *includes, str(given), "-o", str(library)], check=True)
            library.replace(built)
    return built


@cache
def emulated(name: str, *blank: str, options: tuple[str, ...] = ()) -> ctypes.PyDLL:
    """Return a program of this folder, loaded; ``blank`` names headers that are left empty.

    ``options`` are those of ``compiled``.
    With the interpreter locked: the emulator runs one grid at a time.
    """
    made = {words.HEADER_NAME: for_cpu(words.HEADER), **dict.fromkeys(blank, "")}
    return ctypes.PyDLL(str(compiled(f"{name}.cpp", made=made, options=options)))
