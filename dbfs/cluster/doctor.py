"""Checks of this machine: GPUs and the packages that use them, shared memory, kernels; advice for all that is missing.

The checks do not depend on each other, and a failed check is a finding, not an error. A machine without a GPU is
healthy, because the CPU backend needs none. No check needs CuPy to be installed.
"""

import importlib
import os
import pickle
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from dbfs.base.build import build
from dbfs.base.units import format_bytes
from dbfs.cluster import ports
from dbfs.cluster.kernels import kept_kernels, warm_up
from dbfs_workers.base.errors import BackendUnavailableError, ExchangeUnavailableError
from dbfs_workers.search.cuda import nccl, probe
from dbfs_workers.search.cuda.communicator import CommunicatorFailedError
from dbfs_workers.search.exchange.segment import Segment
from dbfs_workers.search.partition.stripe import Stripe

# The kernels are compiled for this architecture on a machine without a GPU.
DEFAULT_ARCH: Final = "sm_90"

_ATTACH: Final = """
import pickle, sys
from dbfs_workers.search.exchange.segment import Segment
Segment.attach(pickle.loads(bytes.fromhex(sys.argv[1])), 1, "doctor").close()
"""
_ATTACH_SECONDS: Final = 60
# The command that compiles all kernels.
_COMPILE: Final = "dbfs doctor --compile"


class CheckState(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    MISSING = "missing"
    OPEN = "open"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        name: the thing that was checked.
        state: the outcome.
        found: one line: what the check found.
        advice: one line: what to do, or why nothing needs to be done; None if the state is ``OK``.
    """

    name: str
    state: CheckState
    found: str
    advice: str | None = None


@dataclass(frozen=True)
class MachineReport:
    """All findings of ``examine``.

    Attributes:
        findings: one or more for each check.
        gpus: the visible GPUs.
        peer_access: bool[GPU][GPU], whether the first GPU can map the memory of the second.
        peer_bandwidth: float[GPU][GPU], GB/s at which the first GPU copies from the second; None if it was not
            measured.
    """

    findings: tuple[Finding, ...]
    gpus: tuple[probe.Gpu, ...]
    peer_access: tuple[tuple[bool, ...], ...]
    peer_bandwidth: tuple[tuple[float | None, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self)


def examine(*, compiles: bool = False) -> MachineReport:
    """Check this machine. On a machine without a GPU, one finding sums up the checks that only a GPU needs.

    ``compiles`` has all kernels compiled that were not before, which takes minutes; otherwise they are counted.
    """
    try:
        driver = probe.driver()
        on_gpus = [_driver(driver)]
    except probe.DriverError as error:
        driver = None
        advice = "reinstall or restart the NVIDIA driver"
        on_gpus = [Finding("driver", CheckState.FAILED, str(error), advice)]
    gpus = driver.gpus if driver else ()
    access = driver.peer_access if driver else ()
    # Package names end in the major version of CUDA.
    major = 12 if driver and driver.cuda < (13, 0) else 13
    cupy = _cupy(major)
    on_gpus += [_gpus(gpus), cupy]
    bandwidth: tuple[tuple[float | None, ...], ...] = tuple((None,) * len(gpus) for _ in gpus)
    if len(gpus) > 1:
        if cupy.state is CheckState.OK:
            bandwidth, finding = _peers(access)
        else:
            finding = Finding("peers", CheckState.MISSING, "not measured without CuPy", _install(major))
        on_gpus.append(finding)
    on_gpus += [_dask_cuda(major), _nccl(major), _ucx(major)]
    on_gpus += _gpu_kernels(sorted({gpu.arch for gpu in gpus}) or [DEFAULT_ARCH], major, compiles)
    findings = (
        _packages(),
        *(on_gpus if gpus else _without_gpus(on_gpus, major)),
        _shared_memory(),
        _dashboard(),
        _cpu_kernels(compiles),
        _ports(),
    )
    return MachineReport(findings, gpus, access, bandwidth)


def _without_gpus(findings: list[Finding], major: int) -> Iterator[Finding]:
    """Yield one finding for all that a machine without GPUs lacks and does not need, then the findings that remain."""
    missing = [finding.name for finding in findings if finding.state is CheckState.MISSING and finding.name != "GPUs"]
    lacking = f" Not here, and needed for GPUs only: {', '.join(missing)}." if missing else ""
    install = (
        f" For GPUs: NVIDIA's driver, 580 or newer for CUDA 13, and pip install '.[cu{major}]' in a clone of dbfs."
    )
    yield Finding("GPUs", CheckState.OK, f"{_visible(())}: fine for CPU.{lacking}{install}")
    yield from (finding for finding in findings if finding.state is not CheckState.MISSING)


def _ports() -> Finding:
    found = ports.of_this_machine()
    advice = ports.advice(found)
    return Finding("ports", CheckState.OPEN if advice else CheckState.OK, ports.describe(found), advice)


def _packages() -> Finding:
    packages = ", ".join(f"{name} {version(name)}" for name in ("dask", "distributed", "numba", "numpy"))
    return Finding("packages", CheckState.OK, f"Python {platform.python_version()}, dbfs {build()}, {packages}")


def _dashboard() -> Finding:
    missing = []
    for name in ("bokeh", "prometheus_client"):
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        advice = "for the page /dbfs and metrics where a scheduler runs: pip install '.[dashboard]' in a clone of dbfs"
        return Finding("dashboard", CheckState.MISSING, f"not installed: {', '.join(missing)}", advice)
    return Finding(
        "dashboard", CheckState.OK, f"bokeh {version('bokeh')}, prometheus-client {version('prometheus-client')}"
    )


def _install(major: int) -> str:
    return f"for GPUs: pip install '.[cu{major}]' in a clone of dbfs"


def _driver(driver: probe.Driver | None) -> Finding:
    if driver is None:
        return Finding(
            "driver",
            CheckState.MISSING,
            "no libcuda.so.1",
            "for GPUs: install NVIDIA's driver, 580 or newer for CUDA 13",
        )
    release = f"{driver.release}, " if driver.release else ""
    return Finding("driver", CheckState.OK, f"{release}runs CUDA up to {driver.cuda[0]}.{driver.cuda[1]}")


def _gpus(gpus: tuple[probe.Gpu, ...]) -> Finding:
    return Finding("GPUs", CheckState.OK if gpus else CheckState.MISSING, _visible(gpus))


def _visible(gpus: tuple[probe.Gpu, ...]) -> str:
    if not gpus:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        return "none" if chosen is None else f"none visible (CUDA_VISIBLE_DEVICES={chosen!r})"
    return f"{len(gpus)}: " + ", ".join(f"{gpu.name} ({gpu.arch}, {format_bytes(gpu.nbytes)})" for gpu in gpus)


def _cupy(major: int) -> Finding:
    found = _first_version(f"cupy-cuda{other}x" for other in (12, 13)) or _first_version(["cupy"])
    if found is None:
        return Finding("CuPy", CheckState.MISSING, "not installed", _install(major))
    name, number = found
    try:
        built = probe.cupy_runtime()
    except Exception as error:  # a broken installation raises anything
        return Finding("CuPy", CheckState.FAILED, f"{name} {number}: {_line(error)}", _install(major))
    return Finding("CuPy", CheckState.OK, f"{name} {number}, CUDA runtime {built[0]}.{built[1]}")


def _peers(access: tuple[tuple[bool, ...], ...]) -> tuple[tuple[tuple[float | None, ...], ...], Finding]:
    apart = len(access) * (len(access) - 1) - sum(sum(row) for row in access)
    try:
        rates = probe.peer_bandwidth(access)
    except Exception as error:  # another process may have filled a GPU, or set its mode
        nothing = tuple((None,) * len(access) for _ in access)
        return nothing, Finding(
            "peers", CheckState.FAILED, _line(error), "look for other processes on the GPUs: nvidia-smi"
        )
    if apart:
        return rates, Finding(
            "peers",
            CheckState.MISSING,
            f"{apart} of {len(access) * (len(access) - 1)} pairs of GPUs can't map each other",
            "these pairs exchange through the host, which is slower: nvidia-smi topo -m shows the links",
        )
    least = min(rate for row in rates for rate in row if rate is not None)
    return rates, Finding("peers", CheckState.OK, f"every GPU maps every other, {least:.0f} GB/s or more")


def _dask_cuda(major: int) -> Finding:
    found = _first_version(["dask-cuda"])
    if found is None:
        return Finding("dask-cuda", CheckState.MISSING, "not installed", _install(major))
    try:
        importlib.import_module("dask_cuda")
    except Exception as error:  # dask-cuda raises anything without its extra or a driver
        return Finding("dask-cuda", CheckState.FAILED, f"{found[1]}: {_line(error)}", _install(major))
    return Finding("dask-cuda", CheckState.OK, found[1])


def _nccl(major: int) -> Finding:
    found = _first_version(["nccl4py"])
    advice = f"for GPUs on several hosts: pip install '.[nccl-cu{major}]' in a clone of dbfs"
    if found is None:
        return Finding("NCCL", CheckState.MISSING, "nccl4py is not installed", advice)
    try:
        number = ".".join(map(str, nccl.version()))
    except CommunicatorFailedError as error:
        return Finding("NCCL", CheckState.FAILED, f"nccl4py {found[1]}: {_line(error)}", advice)
    return Finding("NCCL", CheckState.OK, f"{number}, nccl4py {found[1]}")


def _ucx(major: int) -> Finding:
    found = _first_version(f"distributed-ucxx-cu{other}" for other in (12, 13)) or _first_version(["distributed-ucxx"])
    if found is None:
        advice = f"for the taskgraph engine's bins over NVLink: pip install '.[ucx-cu{major}]' in a clone of dbfs"
        return Finding("UCX", CheckState.MISSING, "not installed", advice)
    try:
        importlib.import_module("distributed_ucxx")
    except Exception as error:  # a shared library that is missing
        return Finding("UCX", CheckState.FAILED, f"{found[0]} {found[1]}: {_line(error)}", f"reinstall {found[0]}")
    return Finding("UCX", CheckState.OK, f"{found[0]} {found[1]}")


def _shared_memory() -> Finding:
    advice = "workers will exchange by TCP, slower; they need one host, one user and one container's /proc"
    try:
        segment = Segment.create(Stripe(2, 2), 8, "doctor")
    except (ExchangeUnavailableError, OSError) as error:
        return Finding("shared memory", CheckState.FAILED, _line(error), advice)
    try:
        handle = pickle.dumps(segment.handle).hex()
        command = [sys.executable, "-c", _ATTACH, handle]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ATTACH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding("shared memory", CheckState.FAILED, f"no answer in {_ATTACH_SECONDS} s", advice)
    finally:
        segment.close()
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Finding("shared memory", CheckState.FAILED, lines[-1], advice)
    return Finding("shared memory", CheckState.OK, "a second process opened it (memfd, /proc)")


def _cpu_kernels(compiles: bool) -> Finding:
    start = time.perf_counter()
    try:
        if not compiles:
            kept, total = kept_kernels()
            later = "" if kept == total else f"; the others when they are needed, or by {_COMPILE}"
            return Finding("CPU kernels", CheckState.OK, f"{kept} of {total} compiled{later}")
        kernels, compiled = warm_up()
    except Exception as error:  # Numba has no folder to write its cache to, or LLVM fails
        advice = "set NUMBA_CACHE_DIR to a folder that can be written"
        return Finding("CPU kernels", CheckState.FAILED, _line(error), advice)
    seconds = time.perf_counter() - start
    folders = sorted({str(kernel.stats.cache_path) for kernel in kernels})
    loaded = f"{len(kernels)}, {compiled} of them compiled now, {seconds:.1f} s; Numba keeps them {_place(folders)}"
    if not all(kernel.kept for kernel in kernels):
        advice = "set NUMBA_CACHE_DIR to a folder that can be written: every process compiles anew"
        return Finding("CPU kernels", CheckState.FAILED, loaded, advice)
    return Finding("CPU kernels", CheckState.OK, loaded)


def _place(folders: list[str]) -> str:
    if len(folders) == 1:
        return f"in {folders[0]}"
    return f"in {len(folders)} folders under {os.path.commonpath(folders)}"


def _gpu_kernels(archs: list[str], major: int, compiles: bool) -> Iterator[Finding]:
    from dbfs_workers.search.cuda.module import cache_folder, cached_cubin, cubin_path, nvrtc_version
    from dbfs_workers.search.cuda.source import sources

    try:
        nvrtc = ".".join(map(str, nvrtc_version()))
    except BackendUnavailableError as error:
        yield Finding("GPU kernels", CheckState.MISSING, str(error).splitlines()[0], _install(major))
        return
    # Those that launch kernels need the linker as well, and one strategy of the laboratory is alone to need them.
    kernels = [source for source in sources() if not source.launching]
    for arch in archs:
        name = f"GPU kernels, {arch}"
        start = time.perf_counter()
        try:
            if not compiles:
                kept = sum(cubin_path(source, arch).exists() for source in kernels)
                later = "" if kept == len(kernels) else f"; the others when they are needed, or by {_COMPILE}"
                yield Finding(name, CheckState.OK, f"{kept} of {len(kernels)} compiled, NVRTC {nvrtc}{later}")
                continue
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda source, arch=arch: cached_cubin(source, arch), kernels))
        except RuntimeError as error:
            advice = f"NVRTC {nvrtc} can't compile them; install the one of the extra cu{major}"
            yield Finding(name, CheckState.FAILED, _line(error), advice)
        except OSError as error:
            yield Finding(
                name, CheckState.FAILED, _line(error), "set DBFS_KERNEL_CACHE to a folder that can be written"
            )
        else:
            seconds = time.perf_counter() - start
            found = f"{len(kernels)} compile, NVRTC {nvrtc}, {seconds:.1f} s; kept in {cache_folder()}"
            yield Finding(name, CheckState.OK, found)


def _first_version(names: Iterable[str]) -> tuple[str, str] | None:
    for name in names:
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    return None


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
