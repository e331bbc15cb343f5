"""The decorators of every CPU kernel of the project, and the array types for their signatures.

A *template*, a function under Numba's ``register_jitable``, is compiled within each kernel that calls it. It may be
given other templates, by name, which are compiled with it. So a walk is written once, and as fast as a loop by hand.
A kernel that gives a kernel to a template is not kept on disk: its code has the other one's address.

A kernel is compiled, or loaded from Numba's cache on disk, when it is called first. ``compiling.prepare`` does that
ahead, so that no kernel is compiled in the middle of a level. Signatures are explicit. An array that a kernel only
reads is declared read-only, because arrays received over a Dask comm are read-only, and Numba refuses them for a
writable parameter.

Compiling takes half a second a kernel. So a *plain* kernel runs as Python if its arrays are small, until the time in
Python would have paid for loading or compiling the kernel: a first small graph waits for no compiler.
"""

import contextlib
import dis
import functools
import glob
import hashlib
import inspect
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar

import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.extending import _Intrinsic
from numpy.typing import NDArray

from dbfs_workers.base import file_lock, interrupts
from dbfs_workers.base.errors import ResourceError

logger = logging.getLogger(__name__)

Function = Callable[..., Any]
_Scalar = TypeVar("_Scalar", bound=np.generic)

FLOAT64 = types.Array(types.float64, 1, "C")
INT32 = types.Array(types.int32, 1, "C")
INT64 = types.Array(types.int64, 1, "C")
UINT8 = types.Array(types.uint8, 1, "C")
UINT16 = types.Array(types.uint16, 1, "C")
UINT32 = types.Array(types.uint32, 1, "C")
READ_INT32 = types.Array(types.int32, 1, "C", readonly=True)
READ_INT64 = types.Array(types.int64, 1, "C", readonly=True)
READ_UINT16 = types.Array(types.uint16, 1, "C", readonly=True)
READ_UINT32 = types.Array(types.uint32, 1, "C", readonly=True)
int64 = types.int64
void = types.void

SMALL: Final = 1 << 15
"""Most elements of all arrays of a call that may run as Python: one takes up to a microsecond there."""

# Seconds in Python from which on a kernel is loaded, if it is kept on disk, or compiled. Loading takes 10 to 40 ms.
_LOADED_AFTER: Final = 0.02
_COMPILED_AFTER: Final = 0.5

TWINS: Final[dict[Any, Function]] = {}
"""By intrinsic, a function of Python that does the same."""


def named(kind: type, *fields: Any) -> Any:
    """Return the Numba type of a named tuple, given the types of its fields.

    A kernel takes no named tuple with fields of other types: an array that is declared read-only must be a read-only
    view (``read_only``).
    """
    return types.BaseTuple.from_types(fields, kind)


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return a read-only view of an array."""
    view = array.view()
    view.flags.writeable = False
    return view


def kernel(result: Any, *arguments: Any, plain: bool = False) -> Callable[[Function], "Kernel"]:
    """Compile a function for one signature, given as the Numba types of its result and its arguments.

    The kernel releases the GIL, so that the worker's event loop runs on. The kernel may not allocate arrays. So Numba
    counts no references to arrays: the count is atomic, and takes longer than a short kernel's work.

    ``plain`` says that Python computes the same with NumPy's numbers. Such a kernel calls plain kernels and intrinsics
    with a twin only. Its unsigned numbers meet numbers of their own type, or numbers that leave them in range: Numba
    computes others in 64 bits, NumPy in the unsigned type.
    """
    assert not isinstance(result, types.Array), "kernels that return arrays are allocating kernels"
    return _compiled(result, arguments, plain, _nrt=False)


def allocating_kernel(result: Any, *arguments: Any, plain: bool = False) -> Callable[[Function], "Kernel"]:
    """Compile a function that allocates arrays, or returns one; see ``kernel``.

    Other kernels may call an allocating kernel. They must not call one that returns new memory: no caller frees memory.
    """
    return _compiled(result, arguments, plain)


def _compiled(result: Any, arguments: tuple[Any, ...], plain: bool, **options: bool) -> Callable[[Function], "Kernel"]:
    def made(function: Function) -> Kernel:
        return Kernel(function, result(*arguments), options, plain=plain)

    return made


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.cache
def _named(function: Function) -> dict[str, Any]:
    """Return what a function uses of its module and of the functions around it, by name."""
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    steps = [step for code in _codes(function.__code__) for step in dis.get_instructions(code)]
    loaded = dict.fromkeys(step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF"))
    return {name: known[name] for name in loaded if name in known}


def _kernels(function: Function) -> Iterator["Kernel"]:
    """Yield the kernels that a function and its templates use."""
    for value in _named(function).values():
        if isinstance(value, Kernel):
            yield value
        elif isinstance(value, FunctionType) and value is not function:
            yield from _kernels(value)


@functools.cache
def _as_python(function: Function) -> Function:
    """Return a function of a kernel, or a template, as Python runs it."""
    known = dict(function.__globals__)
    for name, value in _named(function).items():
        if isinstance(value, Kernel):
            known[name] = value._python
        elif isinstance(value, FunctionType) and value is not function:
            known[name] = _as_python(value)
        elif isinstance(value, _Intrinsic):
            known[name] = TWINS[value]
    return FunctionType(function.__code__, known)


@functools.cache
def content(function: Function) -> str:
    """Return a digest of what a compiled function contains: its code, and the functions and constants that it uses."""
    digest, reached = hashlib.blake2b(digest_size=16), [function]
    # Functions may call themselves, and each other in a circle.
    for each in reached:
        # Numba imports the modules of all of them when it loads the compiled function.
        digest.update(each.__module__.encode())
        for code in _codes(each.__code__):
            # Nested code is walked by itself, and a docstring does nothing.
            constants = [one for one in code.co_consts if not isinstance(one, CodeType) and one != each.__doc__]
            digest.update(code.co_code + repr((code.co_names, constants)).encode())
        for name, value in _named(each).items():
            # Kernels and intrinsics hold their functions.
            inner = getattr(value, "py_func", getattr(value, "_defn", value))
            if isinstance(inner, FunctionType):
                reached += [] if inner in reached else [inner]
                value = str(getattr(value, "signature", ""))
            elif not isinstance(value, int | float | str | tuple | type | np.generic | types.Type):
                value = type(value).__name__
            digest.update(repr((name, value)).encode())
    return digest.hexdigest()


def _classes(kinds: Iterable[Any]) -> Iterator[type]:
    """Yield the classes of the named tuples among types, whose modules the types' names lack."""
    for kind in kinds:
        if isinstance(kind, types.BaseTuple):
            yield getattr(kind, "instance_class", tuple)
            yield from _classes(kind.types)


class _Cache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
    """Compiled kernels on disk. Numba's own cache would keep one beyond a change of another file's functions.

    The files have an ending of their own, and their keys are strings. Numba's keys contain types, which can't be read
    once a class of theirs has moved.
    """

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        files = f"{self._impl.filename_base}.kept"
        self._cache_file = IndexDataCacheFile(self._cache_path, files, self._impl.locator.get_source_stamp())

    def _index_key(self, signature: Any, codegen: Any) -> str:
        classes = list(_classes(signature.args))
        return str((*super()._index_key(signature, codegen), classes, content(self._py_func)))


class Kernel(CPUDispatcher):  # type: ignore[misc]  # Numba is untyped
    """A function that Numba compiles, or loads from its cache on disk, when the function is called first.

    Args:
        signature: its one signature.
        options: of Numba.
        plain: see ``kernel``.

    Attributes:
        signature, plain: see above.
    """

    def __init__(self, function: Function, signature: Any, options: dict[str, bool], *, plain: bool = False) -> None:
        super().__init__(function, targetoptions={"nopython": True, "nogil": True, **options})
        self.signature, self.plain = signature, plain
        self._python_seconds, self._was_kept = 0.0, False
        try:
            self.enable_caching()
        except RuntimeError:
            # Neither the package's folder nor the user's can be written.
            numba.config.CACHE_DIR = own_folder()
            self.enable_caching()

    def enable_caching(self) -> None:
        """Keep the compiled kernel on disk. Numba calls this too."""
        self._cache = _Cache(self.py_func)

    @property
    def name(self) -> str:
        """Module and name of the function, with a colon between them."""
        return f"{self.py_func.__module__}:{self.py_func.__name__}"

    @functools.cached_property
    def called(self) -> list["Kernel"]:
        """The kernels that this kernel calls, by itself or by templates."""
        return list(dict.fromkeys(_kernels(self.py_func)))

    @property
    def kept(self) -> bool:
        """Whether Numba has the compiled kernel on disk."""
        if not self._was_kept:
            key = self._cache._index_key(self.signature, self.targetctx.codegen())
            # Each load of a graph asks for some 40 kernels, and reading an index takes 0.3 ms.
            self._was_kept = key in self._cache._cache_file._load_index()
        return self._was_kept

    def ready(self) -> None:
        """Compile or load the kernel, unless that is done. Another process may be compiling it: its end is awaited."""
        if not self._can_compile:
            return
        # Within the compilation of a kernel, Numba compiles others with that one's options.
        for kernel in self.called:
            kernel.ready()
        # A KeyboardInterrupt within a callback of LLVM crashes the process.
        index = Path(self._cache._cache_file._index_path)
        alone = contextlib.nullcontext() if self.kept else file_lock.held(index.with_suffix(".lock"))
        with alone, global_compiler_lock, interrupts.held():
            if self._can_compile:
                if not self.kept:
                    # Numba writes such files before it renames them. One that is there is of a process that was killed.
                    with contextlib.suppress(OSError):
                        for partial in index.parent.glob(f"{glob.escape(index.stem)}.*.tmp.*"):
                            partial.unlink()
                self.compile(self.signature)
                self.disable_compile()

    @functools.cached_property
    def _python(self) -> Function:
        """The function as Python runs it: what it calls runs as Python, too."""
        assert self.plain, f"{self.name} is called by a plain kernel"
        return _as_python(self.py_func)

    def as_python(self, *arguments: Any) -> Any:
        """Call the plain kernel as Python, and return Python's numbers."""
        began = time.perf_counter()
        # Numba makes numbers of the declared types, and unsigned ones wrap around.
        pairs = zip(arguments, self.signature.args, strict=True)
        given = [
            type_.cast_python_value(one) if isinstance(type_, types.Integer) and not type_.signed else one
            for one, type_ in pairs
        ]
        with np.errstate(over="ignore"):
            result = self._python(*given)
        self._python_seconds += time.perf_counter() - began
        return tuple(map(_number, result)) if isinstance(result, tuple) else _number(result)

    def _pays_in_python(self, arguments: tuple[Any, ...]) -> bool:
        """Return whether a call is small, and loading or compiling the kernel would take longer."""
        if not self.plain or _elements(arguments) > SMALL or self._python_seconds > _COMPILED_AFTER:
            return False
        return self._python_seconds <= _LOADED_AFTER or not self.kept

    def bound(self, *first: Any) -> Callable[..., Any]:
        """Return the kernel with its first arguments given, for many calls. The others have to be numbers.

        In a call of the kernel itself Numba looks at the types of all arguments, which takes 1 to 3 microseconds for a
        named tuple. Those given here are looked at once.

        Raises:
            TypeError: an argument given here has another type than the kernel takes.
        """
        self.ready()
        expected = self.signature.args
        assert all(isinstance(each, types.Number | types.Boolean) for each in expected[len(first) :])
        for argument, type_ in zip(first, expected, strict=False):
            if self.typingctx.can_convert(numba.typeof(argument), type_) is None:
                raise TypeError(f"{self.name} takes {type_}, not {numba.typeof(argument)}")
        return functools.partial(self.overloads[expected].entry_point, *first)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return what a kernel that calls this one has to know. Numba calls this."""
        assert not self._can_compile, f"{self.name} is called in a way that Kernel.called does not see"
        return super().get_call_template(args, kws)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        # Numba calls this for arguments that no compiled signature takes, and then what this returns.
        if not self._can_compile:
            return super()._compile_for_args(*args, **kws)
        if self._pays_in_python(args):
            return self.as_python
        self.ready()
        return self


def _elements(arguments: Iterable[Any]) -> int:
    """Return the elements of all arrays among arguments, and among the fields of named tuples."""
    return sum(
        one.size if isinstance(one, np.ndarray) else _elements(one) if isinstance(one, tuple) else 0
        for one in arguments
    )


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def own_folder() -> str:
    """Return a folder for compiled kernels in the folder for temporary files, which only this user can write.

    Raises:
        ResourceError: another user has that folder.
    """
    folder = Path(tempfile.gettempdir(), f"dbfs-kernels-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        # Whoever can write there can have this process run any code.
        raise ResourceError(f"{folder} is not this user's alone; set NUMBA_CACHE_DIR to a folder for compiled kernels")
    logger.warning("compiled kernels are kept in %s; NUMBA_CACHE_DIR names another folder", folder)
    return str(folder)
