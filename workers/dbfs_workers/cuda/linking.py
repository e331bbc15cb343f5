"""Linking of kernels that launch kernels: relocatable code of NVRTC with CUDA's device runtime, by nvJitLink.

Neither step needs a GPU. ``libcudadevrt.a`` comes with CUDA's toolkit and with ``nvidia-cuda-runtime``; nvJitLink with
the toolkit and with ``nvidia-nvjitlink``.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

from dbfs_workers.errors import BackendUnavailableError

_RUNTIME: Final = "libcudadevrt.a"
# Of the wheels for CUDA 13 and 12, below each folder of packages; and of a toolkit.
_IN_PACKAGES: Final = ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib")
_IN_TOOLKITS: Final = ("lib64", "lib")
_TOOLKIT: Final = "/usr/local/cuda"
_ADVICE: Final = (
    "kernels that launch kernels need it. Install nvidia-nvjitlink and nvidia-cuda-runtime, or CUDA's toolkit"
)


def device_runtime() -> Path:
    """Return the path of CUDA's device runtime.

    Raises:
        BackendUnavailableError: it is not installed.
    """
    toolkits = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), _TOOLKIT]
    folders = [Path(folder, below) for folder in sys.path for below in _IN_PACKAGES]
    folders += [Path(folder, below) for folder in toolkits if folder for below in _IN_TOOLKITS]
    for folder in folders:
        if (folder / _RUNTIME).is_file():
            return folder / _RUNTIME
    raise BackendUnavailableError(f"{_RUNTIME} is not installed; {_ADVICE}")


def linker_version() -> tuple[int, int]:
    """Return nvJitLink's version, such as (13, 0).

    Raises:
        BackendUnavailableError: it is not installed.
    """
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
    try:
        from cuda.bindings import nvjitlink

        # The library itself is loaded by the first call.
        nvjitlink.version()
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailableError(f"nvJitLink is not installed or does not load; {_ADVICE}: {error}") from error
    return nvjitlink
