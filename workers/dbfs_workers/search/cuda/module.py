"""Compilation of kernels: NVRTC at the first use, a cache of cubins on disk, loading by CuPy; and launches.

Compiling needs no GPU and no driver (``compile_cubin``); loading needs both. The cache key covers the source, the
headers that it includes, the options, the architecture and NVRTC's version, so no stale kernel is loaded.
docs/decisions/cuda-core.md says why this is not cuda-core's program cache.

Kernels that launch kernels are linked with CUDA's device runtime by nvJitLink, which needs no GPU either.
``libcudadevrt.a`` comes with CUDA's toolkit and with ``nvidia-cuda-runtime``; nvJitLink with the toolkit and with
``nvidia-nvjitlink``.
"""

import hashlib
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from dbfs_workers.base import file_lock
from dbfs_workers.base.errors import BackendUnavailableError
from dbfs_workers.base.kernel_packages import declared
from dbfs_workers.search.cuda.kernels.sources import Variant
from dbfs_workers.search.cuda.source import Source, sources

_RUNTIME: Final = "libcudadevrt.a"
# Of the wheels for CUDA 13 and 12, below each folder of packages; and of a toolkit.
_IN_PACKAGES: Final = ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib")
_IN_TOOLKITS: Final = ("lib64", "lib")
_TOOLKIT: Final = "/usr/local/cuda"
_ADVICE: Final = (
    "kernels that launch kernels need it. Install nvidia-nvjitlink and nvidia-cuda-runtime, or CUDA's toolkit"
)


def device_runtime() -> Path:
    """Return the path of CUDA's device runtime; raise ``BackendUnavailableError`` if it is not installed."""
    toolkits = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), _TOOLKIT]
    folders = [Path(folder, below) for folder in sys.path for below in _IN_PACKAGES]
    folders += [Path(folder, below) for folder in toolkits if folder for below in _IN_TOOLKITS]
    for folder in folders:
        if (folder / _RUNTIME).is_file():
            return folder / _RUNTIME
    raise BackendUnavailableError(f"{_RUNTIME} is not installed; {_ADVICE}")


def linker_version() -> tuple[int, int]:
    """Return nvJitLink's version, such as (13, 0). Errors as for ``_binding``."""
    major, minor = _linker().version()
    return int(major), int(minor)


def link(cubin: bytes, arch: str, name: str) -> bytes:
    """Return relocatable code linked with CUDA's device runtime.

    Args:
        cubin: code compiled with ``-rdc=true``.
        arch: its architecture, such as ``sm_90``.
        name: its source, for messages.

    Raises:
        BackendUnavailableError: nvJitLink or the runtime is not installed.
        RuntimeError: they do not link; the message has the linker's log.
    """
    linker, runtime = _linker(), device_runtime()
    handle = linker.create(1, [f"-arch={arch}"])
    try:
        linker.add_data(handle, linker.InputType.CUBIN, cubin, len(cubin), name)
        linker.add_file(handle, linker.InputType.LIBRARY, str(runtime))
        linker.complete(handle)
        linked = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, linked)
    except linker.nvJitLinkError as error:
        log = bytearray(linker.get_error_log_size(handle))
        linker.get_error_log(handle, log)
        raise RuntimeError(f"{name} for {arch}: {error}\n{log.decode()}") from error
    finally:
        linker.destroy(handle)
    return bytes(linked)


def _linker() -> Any:
    return _binding("nvjitlink", "version", f"nvJitLink is not installed or does not load; {_ADVICE}")


def _binding(module: str, version: str, missing: str) -> Any:
    """Return a module of CUDA's bindings, whose library is loaded by the call of its function ``version``.

    Raise ``BackendUnavailableError``, which begins with ``missing``, if the module or its library is not there.
    """
    try:
        found = importlib.import_module(f"cuda.bindings.{module}")
        getattr(found, version)()
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailableError(f"{missing}: {error}") from error
    return found


def cache_folder() -> Path:
    """Return the folder of compiled kernels: ``$DBFS_KERNEL_CACHE``, or a folder in the user's cache folder."""
    chosen = os.environ.get("DBFS_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dbfs" / "kernels"


def compile_cubin(source: Source, arch: str, *, verbose: bool = False) -> tuple[bytes, str]:
    """Compile a source for an architecture such as ``sm_90``. No cache.

    Returns:
        The cubin, and the compiler's log (with ``verbose``: registers, stack and spills of each function).

    Raises:
        BackendUnavailableError: NVRTC is not installed, or what links a source whose kernels launch kernels.
        RuntimeError: the source does not compile; the message has the compiler's log.
    """
    nvrtc = _nvrtc()
    headers = source.headers()
    texts, names = ([text.encode() for text in side] for side in (headers.values(), headers))
    options = [*_options(source, arch), *(("--ptxas-options=-v",) if verbose else ())]
    text, name = source.text.encode(), source.path.encode()
    (program,) = _call(nvrtc.nvrtcCreateProgram, text, name, len(names), texts, names)
    try:
        (failed,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        if failed:
            raise RuntimeError(f"{source.path} for {arch}: {failed.name}\n{log}")
        cubin = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return link(cubin, arch, source.path) if source.launching else cubin, log
    finally:
        _call(nvrtc.nvrtcDestroyProgram, program)


def _options(source: Source, arch: str) -> tuple[str, ...]:
    linked = ("-rdc=true",) if source.launching else ()
    return f"-arch={arch}", "-std=c++17", "-default-device", *linked, *source.defines


def _call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> list[Any]:
    failed, *answers = function(*arguments)
    if failed:
        raise RuntimeError(f"{function.__name__}: {failed.name}")
    return answers


def _read(size_of: Callable[..., tuple[Any, ...]], get: Callable[..., tuple[Any, ...]], program: Any) -> bytes:
    (size,) = _call(size_of, program)
    # NVRTC writes into the bytes object. Its length is never 1, because Python shares equal objects of one byte.
    buffer = bytes(size + 1)
    _call(get, program, buffer)
    return buffer[:size]


def _nvrtc() -> Any:
    return _binding("nvrtc", "nvrtcVersion", "NVRTC, which compiles the kernels, is not installed or does not load")


def nvrtc_version() -> tuple[int, int]:
    """Return NVRTC's version, such as (13, 0). Errors as for ``_binding``."""
    major, minor = _call(_nvrtc().nvrtcVersion)
    return major, minor


def cubin_path(source: Source, arch: str) -> Path:
    """Return the path of the cubin in the cache, compiled or not."""
    key = hashlib.sha256(repr((source.path, _options(source, arch), nvrtc_version())).encode())
    if source.launching:
        key.update(repr(linker_version()).encode())
    for name, text in {"": source.text, **source.headers()}.items():
        key.update(f"{name}\0{text}\0".encode())
    return cache_folder() / f"{Path(source.path).stem}-{arch}-{key.hexdigest()[:24]}.cubin"


def cached_cubin(source: Source, arch: str) -> Path:
    """Return the path of the cubin in the cache, after compiling it if it is absent."""
    path = cubin_path(source, arch)
    if path.exists():
        return path
    # One worker of a machine compiles, and the others wait.
    with file_lock.held(path.with_suffix(".lock")):
        if not path.exists():
            cubin, _ = compile_cubin(source, arch)
            # A reader finds a whole file or none. The lock is held: a partial file is of a process that was killed.
            partial = path.with_suffix(".partial")
            partial.write_bytes(cubin)
            partial.replace(path)
    return path


# What processes run that compile one source.
_COMPILE_ONE: Final = "import sys; from dbfs_workers.search.cuda import module; module.compile_one(*sys.argv[1:])"
_SILENT: Final[dict[str, Any]] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)


def begin(arch: str, *, gang: bool) -> None:
    """Have the kernels compiled, beside other work, by which graphs are built, traversed, read and validated.

    Args:
        arch: see ``compile_cubin``.
        gang: whether graphs are on several GPUs.
    """
    resident = [Variant(gang, predecessors).source for predecessors in (False, True)]

    def compile_missing() -> None:
        try:
            missing = [
                source
                for source in sources()
                if (source.first or source in resident) and not cubin_path(source, arch).exists()
            ]
        except BackendUnavailableError:
            # The worker that needs a kernel says what is missing.
            return
        # NVRTC compiles one source of a process at a time.
        commands = [["-c", _COMPILE_ONE, arch, source.path, *source.defines] for source in missing]
        if missing:
            commands += [["-m", program] for program in declared("AHEAD", "sources.py")]
        processes = [
            subprocess.Popen([sys.executable, *command], start_new_session=True, **_SILENT) for command in commands
        ]
        for process in processes:
            process.wait()

    # A daemon: Python does not wait for the thread.
    threading.Thread(target=compile_missing, daemon=True).start()


def compile_one(arch: str, path: str, *defines: str) -> None:
    """Compile a declared source into the cache."""
    for source in sources():
        if (source.path, source.defines) == (path, defines):
            cached_cubin(source, arch)


@cache
def _load(source: Source, arch: str, device: int, cooperative: bool) -> Any:
    import cupy

    with cupy.cuda.Device(device):
        return cupy.RawModule(path=str(cached_cubin(source, arch)), enable_cooperative_groups=cooperative)


def load(source: Source, *, cooperative: bool = False) -> Any:
    """Return the module on the current device (a ``cupy.RawModule``), loaded once per process."""
    import cupy

    device = cupy.cuda.Device()
    return _load(source, f"sm_{device.compute_capability}", device.id, cooperative)


class Launch:
    """A kernel with its arguments, which stay in host memory: CUDA copies them, and no Python object is made.

    The caller may change the arguments between launches. A launch by CuPy's own call takes 40 us for a few arguments,
    and 100 us for a large struct; this one takes 5 us.

    Args:
        kernel: the kernel, from ``cupy.RawModule.get_function``. Its module stays loaded as long as this object lives.
        arguments: the kernel's arguments as a structured array, a field for each argument; each element serves one
            launch. The array must not move: its owner keeps it, and changes it in place.
        cooperative: whether all blocks must run at once.
    """

    def __init__(self, kernel: Any, arguments: np.ndarray[Any, Any], *, cooperative: bool = False) -> None:
        import cupy

        self._kernel = kernel
        self._arguments = arguments
        fields = arguments.dtype.fields or {}
        places = [arguments.ctypes.data + fields[name][1] for name in arguments.dtype.names or ()]
        elements = arguments.itemsize * np.arange(arguments.size, dtype=np.uint64)
        self._pointers = elements[:, np.newaxis] + np.array(places, np.uint64)
        self._driver = cupy.cuda.driver
        self._cooperative = cooperative
        self._function: int = kernel.kernel.ptr
        self._places: int = self._pointers.ctypes.data

    def __call__(self, blocks: int, threads: int, shared_bytes: int, stream: int, element: int = 0) -> None:
        """Launch the kernel.

        Args:
            blocks: blocks of the grid.
            threads: threads of a block.
            shared_bytes: dynamic shared memory of a block.
            stream: the stream's pointer.
            element: the element of the arguments.
        """
        shape = (blocks, 1, 1, threads, 1, 1)
        places = self._places + element * self._pointers.strides[0]
        if self._cooperative:
            self._driver.launchCooperativeKernel(self._function, *shape, shared_bytes, stream, places)
        else:
            self._driver.launchKernel(self._function, *shape, shared_bytes, stream, places, 0)


class Launches:
    """Kernels whose arguments are integers and addresses, launched on the current stream.

    Args:
        kernels: the kernels by name, from ``cupy.RawModule.get_function``.
    """

    def __init__(self, kernels: Mapping[str, Any]) -> None:
        import cupy

        self._kernels, self._stream = kernels, cupy.cuda.get_current_stream
        # By kernel, its arguments, and the launch that reads them there.
        self._launches: dict[str, tuple[np.ndarray[Any, Any], Launch]] = {}

    def __call__(self, name: str, blocks: int, threads: int, *arguments: int) -> None:
        """Launch a kernel.

        Each argument has 8 bytes in host memory. CUDA takes as many of them as the kernel's parameter has, the lowest
        first.
        """
        if name not in self._launches:
            structure = np.zeros(1, [(f"argument{place}", np.int64) for place in range(len(arguments))])
            self._launches[name] = structure.view(np.int64), Launch(self._kernels[name], structure)
        values, launch = self._launches[name]
        values[:] = arguments
        launch(blocks, threads, 0, self._stream().ptr)


def placed_launches(source: Source, prefix: str, names: Iterable[str]) -> Callable[..., None]:
    """Return ``Launches`` of some kernels of a source, whose arguments may also be CuPy's arrays."""
    module = load(source)
    launch = Launches({name: module.get_function(prefix + name) for name in names})

    def placed(name: str, blocks: int, threads: int, *arguments: Any) -> None:
        launch(name, blocks, threads, *(each if isinstance(each, int) else each.data.ptr for each in arguments))

    return placed
