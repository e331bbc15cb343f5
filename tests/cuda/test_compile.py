"""Every kernel compiles for every architecture, with NVRTC and no GPU, and no variant of the resident kernel spills.

Axes: resident.cu in its four variants (one rank or a gang, with and without predecessors) and the sources of small
kernels, each for sm_75, sm_80, sm_90 and sm_100.
"""

import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dbfs_workers.base.errors import BackendUnavailableError
from dbfs_workers.features.batches import on_gpu as batch_cuda
from dbfs_workers.features.batches import sweeps_cuda
from dbfs_workers.features.grid import on_gpu as grid_cuda
from dbfs_workers.features.lab.device import defines
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.strategies import parse
from dbfs_workers.search.cuda import layout, module
from dbfs_workers.search.cuda.backend import KERNELS as BACKEND_KERNELS
from dbfs_workers.search.cuda.module import (
    KERNEL_FOLDER,
    KERNELS,
    LAUNCHING,
    PLAIN_DEFINES,
    Variant,
    cached_cubin,
    compile_cubin,
    headers,
)
from dbfs_workers.search.cuda.summary import SHARED_BINS, SHARED_BYTES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="NVRTC's wheels here are for Linux"),
    pytest.mark.timeout(300),
]

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
VARIANTS = [Variant(gang, predecessors) for gang, predecessors in itertools.product((False, True), repeat=2)]
# The first size compiles for the architecture of the measured figures, and one variant of the resident kernel.
ARCHITECTURE_ROWS = [pytest.param(arch, marks=[] if arch == "sm_90" else pytest.mark.full) for arch in ARCHITECTURES]
VARIANT_ROWS = [
    pytest.param(
        variant,
        marks=[] if variant.predecessors and not variant.gang else pytest.mark.full,
        id=f"gang={variant.gang:d}-predecessors={variant.predecessors:d}",
    )
    for variant in VARIANTS
]
# The register file of a multiprocessor, of every architecture above.
REGISTERS = 64 * 1024
SMALL_KERNELS = {
    "search/cuda/kernels/resident/summary.cu": {"dbfs_summary"},
    **{source: {f"dbfs_{name}" for name in names} for source, names in BACKEND_KERNELS.items()},
    grid_cuda.SOURCE: {f"dbfs_grid_{name}" for name in grid_cuda.KERNELS},
    sweeps_cuda.SOURCE: {f"dbfs_sweeps_{name}" for name in sweeps_cuda.KERNELS},
    batch_cuda.SOURCE: {f"dbfs_batch_{name}" for name in batch_cuda.KERNELS},
    "search/cuda/kernels/phases/messages.cu": {
        *("dbfs_pack", "dbfs_pack_level", "dbfs_small_level", "dbfs_contract_messages"),
        *("dbfs_absorb", "dbfs_measure", "dbfs_pack_found"),
    },
    "building/kernels/kronecker.cu": {"dbfs_kronecker"},
    "building/kernels/binning.cu": {"dbfs_count_degrees", "dbfs_count_owners", "dbfs_bin_edges"},
    "building/kernels/csr.cu": {"dbfs_row_offsets", "dbfs_columns"},
    "building/kernels/degree_order.cu": {"dbfs_order_keys", "dbfs_order"},
    "building/kernels/facts.cu": {"dbfs_facts", "dbfs_common_degrees"},
    "features/living/kernels/merging.cu": {
        f"dbfs_{name}" for name in ("plan_changes", "merged_offsets", "insert_columns", "move_columns")
    },
    "features/validation/kernels/validation.cu": {"dbfs_check_edges", "dbfs_pack_labels"},
    "features/living/kernels/repair.cu": {"dbfs_repair"},
    "serving/reads/kernels/by_vertex.cu": {"dbfs_by_vertex_1", "dbfs_by_vertex_2", "dbfs_by_vertex_4"},
    "features/lab/kernels/expand_contract.cu": {"dbfs_lab_expand_contract"},
    "features/lab/kernels/contract_expand.cu": {"dbfs_lab_contract_expand"},
    "features/lab/kernels/two_phase.cu": {"dbfs_lab_expand", "dbfs_lab_contract"},
    "features/lab/kernels/radix_bins.cu": {
        f"dbfs_lab_{name}" for name in ("count_by_owner", "copy_to_bins", "contract_bin")
    },
    "features/lab/kernels/masks.cu": {"dbfs_lab_mask_expand", "dbfs_lab_mask_update"},
    "features/lab/kernels/warp_centric.cu": {"dbfs_lab_warp_centric"},
    "features/lab/kernels/status_array.cu": {"dbfs_lab_status_array"},
    "features/lab/kernels/status_scan.cu": {"dbfs_lab_scan_status", "dbfs_lab_label_neighbours"},
    "features/lab/kernels/atomic_queue.cu": {"dbfs_lab_atomic_queue"},
    "features/lab/kernels/bitmap_queue.cu": {"dbfs_lab_bitmap_queue"},
    "features/lab/kernels/matrix_vector.cu": {"dbfs_lab_matrix_vector"},
    "features/lab/kernels/hierarchical.cu": {"dbfs_lab_in_block", "dbfs_lab_in_grid", "dbfs_lab_in_launch"},
    "features/lab/kernels/pages.cu": {
        f"dbfs_lab_{name}" for name in ("fill_pages", "read_pages", "plan_batch", "insert", "delete")
    },
    "features/lab/kernels/phases.cu": {
        "dbfs_lab_gather_alone",
        "dbfs_lab_look_up_alone",
        "dbfs_lab_gather_and_look_up",
    },
    "features/lab/kernels/degree_classes.cu": {
        f"dbfs_lab_{name}"
        for name in ("write_classes", "by_threads", "by_warps", "by_blocks", "by_grid", "sort_by_class")
    },
}

LAUNCHING_KERNELS = {
    "features/lab/kernels/device_launches.cu": {
        f"dbfs_lab_{name}" for name in ("device_loop", "device_level", "child_kernels", "large_list")
    },
}

DEFINES = dict(KERNELS)
HEADERS = headers()


@dataclass(frozen=True)
class Function:
    """Resources of a function as ptxas reports them; `registers` is None for a function that is not a kernel.

    `shared` is the static shared memory in bytes.
    """

    name: str
    stack: int
    spilled: int
    registers: int | None
    shared: int


def functions(log: str) -> dict[str, Function]:
    """Return the functions of a verbose compiler log by name."""
    pattern = re.compile(
        r"Function properties for (\w+)\n"
        r".*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        r"(?:\n.*?Used (\d+) registers(?:.*?(\d+) bytes smem)?)?"
    )
    found = {}
    for name, stack, stores, loads, registers, shared in pattern.findall(log):
        spilled = int(stores) + int(loads)
        found[name] = Function(name, int(stack), spilled, int(registers) if registers else None, int(shared or 0))
    return found


@pytest.mark.matrix
@pytest.mark.parametrize("variant", VARIANT_ROWS)
@pytest.mark.parametrize("arch", ARCHITECTURE_ROWS)
def test_the_resident_kernel_keeps_to_its_registers(arch: str, variant: Variant) -> None:
    cubin, log = compile_cubin("search/cuda/kernels/resident/resident.cu", arch, variant.defines, verbose=True)
    assert cubin.startswith(b"\x7fELF")
    found = functions(log)
    assert {name: function.spilled for name, function in found.items() if function.spilled} == {}
    kernel = found["dbfs_resident"]
    assert kernel.stack == 0
    assert kernel.registers is not None
    assert kernel.registers * variant.threads * variant.blocks_per_sm <= REGISTERS


@pytest.mark.matrix
@pytest.mark.parametrize("source", SMALL_KERNELS)
@pytest.mark.parametrize("arch", ARCHITECTURE_ROWS)
def test_small_kernels_keep_to_their_registers(arch: str, source: str) -> None:
    cubin, log = compile_cubin(source, arch, DEFINES[source], verbose=True)
    assert cubin.startswith(b"\x7fELF")
    found = functions(log)
    assert set(found) == SMALL_KERNELS[source]
    assert {name: function.spilled for name, function in found.items() if function.spilled} == {}


@pytest.mark.parametrize(
    ("source", "policy"),
    [
        ("features/lab/kernels/atomic_queue.cu", "atomic-queue:gathering=serial"),
        ("features/lab/kernels/atomic_queue.cu", "atomic-queue:gathering=serial,items=4,threads=512,storage=pages"),
        ("features/lab/kernels/atomic_queue.cu", "atomic-queue:items=4"),
        ("features/lab/kernels/degree_classes.cu", "degree-classes:items=4,threads=512"),
    ],
)
def test_queues_in_registers_take_no_local_memory(source: str, policy: str) -> None:
    parsed = parse(policy)
    _, log = compile_cubin(source, "sm_90", defines(int(parsed.threads), policy_constants(parsed)), verbose=True)
    found = functions(log)
    assert set(found) == SMALL_KERNELS[source]
    assert {name: (one.stack, one.spilled) for name, one in found.items() if one.stack or one.spilled} == {}


@pytest.mark.matrix
@pytest.mark.parametrize("source", LAUNCHING)
@pytest.mark.parametrize("arch", ARCHITECTURE_ROWS)
def test_kernels_that_launch_kernels_are_linked(arch: str, source: str) -> None:
    _skip_without_linker()
    cubin, log = compile_cubin(source, arch, verbose=True)
    assert cubin.startswith(b"\x7fELF")
    # The device runtime's part of the code.
    assert len(cubin) > 200_000
    found = functions(log)
    assert {name for name in found if name.startswith("dbfs")} == LAUNCHING_KERNELS[source]
    assert {name: function.spilled for name, function in found.items() if function.spilled} == {}


def _skip_without_linker() -> None:
    try:
        module.linker_version()
        module.device_runtime()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("source", LAUNCHING)
def test_kernels_that_launch_kernels_compile_without_a_linker(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "link", lambda cubin, arch, name: cubin)
    cubin, _ = compile_cubin(source, "sm_90")
    assert cubin.startswith(b"\x7fELF")


def test_without_the_device_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(module, "_TOOLKIT", str(tmp_path / "toolkit"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    with pytest.raises(BackendUnavailableError, match=r"libcudadevrt\.a is not installed; kernels that launch kernels"):
        module.device_runtime()
    for folder in (tmp_path / "toolkit" / "lib64", tmp_path / "nvidia" / "cu13" / "lib"):
        folder.mkdir(parents=True)
        (folder / "libcudadevrt.a").touch()
        assert module.device_runtime() == folder / "libcudadevrt.a"
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    with pytest.raises(BackendUnavailableError, match="nvJitLink is not installed or does not load; kernels that laun"):
        module.linker_version()


def test_what_does_not_link() -> None:
    _skip_without_linker()
    with pytest.raises(RuntimeError, match=r"^features/lab/kernels/none\.cu for sm_90: "):
        module.link(b"\x7fELF", "sm_90", "features/lab/kernels/none.cu")


def test_the_counters_of_a_deep_run_fit_beside_the_kernels_own_variables() -> None:
    _, log = compile_cubin(
        "search/cuda/kernels/resident/summary.cu",
        "sm_90",
        DEFINES["search/cuda/kernels/resident/summary.cu"],
        verbose=True,
    )
    shared = functions(log)["dbfs_summary"].shared
    assert shared > 0
    assert shared + 8 * SHARED_BINS <= SHARED_BYTES


def test_every_source_is_compiled_here() -> None:
    compiled = {*SMALL_KERNELS, *LAUNCHING_KERNELS, "search/cuda/kernels/resident/resident.cu"}
    assert {path.relative_to(KERNEL_FOLDER).as_posix() for path in KERNEL_FOLDER.rglob("*.cu")} == compiled


@pytest.mark.full
def test_spills_would_be_seen() -> None:
    """With half the registers the kernel spills, and `functions` finds the spills in the log."""
    crowded = Variant(gang=False, predecessors=False, blocks_per_sm=2)
    _, log = compile_cubin("search/cuda/kernels/resident/resident.cu", "sm_90", crowded.defines, verbose=True)
    found = functions(log)["dbfs_resident"]
    assert found.spilled > 0
    assert found.registers == 32


def test_an_error_of_the_compiler_names_the_place() -> None:
    with pytest.raises(RuntimeError, match=r"summary\.cu for sm_90: NVRTC_ERROR_COMPILATION\n(?s:.)*DBFS_PREDECESSORS"):
        compile_cubin("search/cuda/kernels/resident/summary.cu", "sm_90")


@pytest.mark.parametrize("struct", ["Csr", "Peer", "LevelRecord", "HostView", "Line", "Slot", "Control", "Params"])
def test_a_wrong_offset_or_size_does_not_compile(struct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that expects another size, or another offset of the last field, does not compile."""
    *_, offset = re.finditer(rf"DBFS_OFFSETOF\({struct}, (\w+)\) == (\d+)", layout.HEADER)
    size = re.search(rf"sizeof\({struct}\) == (\d+)", layout.HEADER)
    assert size is not None
    for found, message in ((offset, f"offset of {struct}::{offset[1]}"), (size, f"size of {struct}")):
        at, end = found.span(found.lastindex or 0)
        wrong = f"{layout.HEADER[:at]}{int(layout.HEADER[at:end]) + 8}{layout.HEADER[end:]}"
        monkeypatch.setattr(module, "headers", lambda wrong=wrong: {**HEADERS, layout.HEADER_NAME: wrong})
        with pytest.raises(RuntimeError, match=f'static assertion failed with "{message}"'):
            compile_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES)


def test_fields_in_another_order_do_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = layout.HEADER.replace("u32 rank;", "u32 swap;").replace("u32 ranks;", "u32 rank;")
    swapped = swapped.replace("u32 swap;", "u32 ranks;")
    monkeypatch.setattr(module, "headers", lambda: {**HEADERS, layout.HEADER_NAME: swapped})
    with pytest.raises(RuntimeError, match='static assertion failed with "offset of Params::rank"'):
        compile_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES)


def test_another_header_is_another_file_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBFS_KERNEL_CACHE", str(tmp_path))
    path = cached_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES)
    changed = f"{layout.HEADER}\n"
    monkeypatch.setattr(module, "headers", lambda: {**HEADERS, layout.HEADER_NAME: changed})
    assert cached_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES) != path


def test_an_architecture_nvrtc_does_not_know() -> None:
    with pytest.raises(RuntimeError, match=r"summary\.cu for sm_1: .*\n(?s:.)*gpu-architecture"):
        compile_cubin("search/cuda/kernels/resident/summary.cu", "sm_1", PLAIN_DEFINES)


def test_a_compiled_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBFS_KERNEL_CACHE", str(tmp_path))
    path = cached_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES)
    assert path.parent == tmp_path
    path.write_bytes(b"kept")
    assert cached_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES) == path
    assert path.read_bytes() == b"kept"
    assert cached_cubin("search/cuda/kernels/resident/summary.cu", "sm_80", PLAIN_DEFINES) != path
    assert {made.suffix for made in tmp_path.iterdir()} == {".cubin"}


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(BackendUnavailableError, match="NVRTC, which compiles the kernels, is not installed"):
        compile_cubin("search/cuda/kernels/resident/summary.cu", "sm_90", PLAIN_DEFINES)
