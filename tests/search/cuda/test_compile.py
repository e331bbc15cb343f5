"""Every kernel compiles for every architecture, with NVRTC and no GPU, and no variant of the resident kernel spills.

Axes: resident.cu in its four variants (one rank or a gang, with and without predecessors) and the sources of small
kernels, each for sm_75, sm_80, sm_90 and sm_100.
"""

import itertools
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dbfs_workers.base.errors import BackendUnavailableError
from dbfs_workers.base.kernel_packages import PACKAGE
from dbfs_workers.building.kernels.sources import BINNING, CSR, DEGREE_ORDER, KRONECKER
from dbfs_workers.features.batches import on_gpu as batch_cuda
from dbfs_workers.features.batches import path_sums_cuda
from dbfs_workers.features.batches.kernels.sources import BATCH, PATH_SUMS
from dbfs_workers.features.grid import on_gpu as grid_cuda
from dbfs_workers.features.grid.kernels.sources import GRID
from dbfs_workers.features.lab.device import defines
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.kernels.sources import lab_source
from dbfs_workers.features.lab.strategies import parse
from dbfs_workers.features.living.kernels.sources import MERGING, REPAIR
from dbfs_workers.features.paths.kernels.sources import PAIRS
from dbfs_workers.features.validation.kernels.sources import VALIDATION
from dbfs_workers.features.weights.kernels.sources import ALONE, GANG
from dbfs_workers.search.cuda import layout, module
from dbfs_workers.search.cuda import source as source_module
from dbfs_workers.search.cuda.backend import KERNELS as BACKEND_KERNELS
from dbfs_workers.search.cuda.kernels.sources import FACTS, MESSAGES, SUMMARY, Variant
from dbfs_workers.search.cuda.module import cached_cubin, compile_cubin, cubin_path
from dbfs_workers.search.cuda.source import Source, sources
from dbfs_workers.search.cuda.summary import SHARED_BINS, SHARED_BYTES
from dbfs_workers.serving.reads.kernels.sources import BY_VERTEX
from tests.support.cuda_on_cpu.compiler import kept

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
    SUMMARY: {"dbfs_summary"},
    **{source: {f"dbfs_{name}" for name in names} for source, names in BACKEND_KERNELS.items()},
    GRID: {f"dbfs_grid_{name}" for name in grid_cuda.KERNELS},
    PATH_SUMS: {f"dbfs_path_sums_{name}" for name in path_sums_cuda.KERNELS},
    BATCH: {f"dbfs_batch_{name}" for name in batch_cuda.KERNELS},
    MESSAGES: {
        *("dbfs_pack", "dbfs_pack_level", "dbfs_small_level", "dbfs_contract_messages"),
        *("dbfs_absorb", "dbfs_measure", "dbfs_pack_found"),
    },
    KRONECKER: {"dbfs_kronecker"},
    BINNING: {"dbfs_count_degrees", "dbfs_count_owners", "dbfs_bin_edges"},
    CSR: {"dbfs_row_offsets", "dbfs_columns"},
    DEGREE_ORDER: {"dbfs_order_keys", "dbfs_order"},
    FACTS: {"dbfs_facts", "dbfs_uses", "dbfs_hubs", "dbfs_common_degrees", "dbfs_table"},
    MERGING: {f"dbfs_{name}" for name in ("plan_changes", "merged_offsets", "insert_columns", "move_columns")},
    VALIDATION: {"dbfs_check_edges", "dbfs_pack_labels"},
    REPAIR: {"dbfs_repair"},
    ALONE: {f"dbfs_weights_{name}" for name in ("whole32", "int64", "float32", "float64")},
    GANG: {f"dbfs_weights_{name}" for name in ("whole32", "int64", "float32", "float64")},
    PAIRS: {"dbfs_pair_distances"},
    BY_VERTEX: {"dbfs_by_vertex_1", "dbfs_by_vertex_2", "dbfs_by_vertex_4"},
    lab_source("expand_contract"): {"dbfs_lab_expand_contract"},
    lab_source("contract_expand"): {"dbfs_lab_contract_expand"},
    lab_source("two_phase"): {"dbfs_lab_expand", "dbfs_lab_contract"},
    lab_source("radix_bins"): {f"dbfs_lab_{name}" for name in ("count_by_owner", "copy_to_bins", "contract_bin")},
    lab_source("masks"): {"dbfs_lab_mask_expand", "dbfs_lab_mask_update"},
    lab_source("warp_centric"): {"dbfs_lab_warp_centric"},
    lab_source("status_array"): {"dbfs_lab_status_array"},
    lab_source("status_scan"): {"dbfs_lab_scan_status", "dbfs_lab_label_neighbours"},
    lab_source("atomic_queue"): {"dbfs_lab_atomic_queue"},
    lab_source("bitmap_queue"): {"dbfs_lab_bitmap_queue"},
    lab_source("matrix_vector"): {"dbfs_lab_matrix_vector"},
    lab_source("hierarchical"): {"dbfs_lab_in_block", "dbfs_lab_in_grid", "dbfs_lab_in_launch"},
    lab_source("pages"): {
        f"dbfs_lab_{name}" for name in ("fill_pages", "read_pages", "plan_update", "insert", "delete")
    },
    lab_source("phases"): {
        "dbfs_lab_gather_alone",
        "dbfs_lab_look_up_alone",
        "dbfs_lab_gather_and_look_up",
    },
    lab_source("degree_classes"): {
        f"dbfs_lab_{name}"
        for name in ("write_classes", "by_threads", "by_warps", "by_blocks", "by_grid", "sort_by_class")
    },
}

LAUNCHING = lab_source("device_launches")
LAUNCHING_KERNELS = {f"dbfs_lab_{name}" for name in ("device_loop", "device_level", "child_kernels", "large_list")}


# The second size compiles one source of the laboratory, since those compile for the longest.
SOURCE_ROWS = [
    pytest.param(
        source,
        marks=pytest.mark.long if "/lab/" in source.path and source != lab_source("pages") else [],
        id=source.path,
    )
    for source in SMALL_KERNELS
]


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


def compiled(source: Source, arch: str) -> tuple[bytes, str]:
    """Return the cubin and the compiler's log; a source that stays the same is compiled once per machine."""
    cubin = kept() / cubin_path(source, arch).name
    log = cubin.with_suffix(".log")
    if not log.exists():
        for path, made in zip((cubin, log), compile_cubin(source, arch, verbose=True), strict=True):
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(made if isinstance(made, bytes) else made.encode())
            partial.replace(path)
    return cubin.read_bytes(), log.read_text()


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("variant", VARIANT_ROWS)
@pytest.mark.parametrize("arch", ARCHITECTURE_ROWS)
def test_the_resident_kernel_keeps_to_its_registers(arch: str, variant: Variant) -> None:
    cubin, log = compiled(variant.source, arch)
    assert cubin.startswith(b"\x7fELF")
    found = functions(log)
    assert {name: function.spilled for name, function in found.items() if function.spilled} == {}
    kernel = found["dbfs_resident"]
    assert kernel.stack == 0
    assert kernel.registers is not None
    assert kernel.registers * variant.threads * variant.blocks_per_sm <= REGISTERS


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("source", SOURCE_ROWS)
@pytest.mark.parametrize("arch", ARCHITECTURE_ROWS)
def test_small_kernels_keep_to_their_registers(arch: str, source: Source) -> None:
    cubin, log = compiled(source, arch)
    assert cubin.startswith(b"\x7fELF")
    found = functions(log)
    assert set(found) == SMALL_KERNELS[source]
    spilled = {name: function.spilled for name, function in found.items() if function.spilled}
    # Keys of 64 bits of several ranks take two registers more there than there are.
    before_hopper = source == GANG and arch in ("sm_75", "sm_80")
    assert spilled == ({"dbfs_weights_float64": 8, "dbfs_weights_int64": 8} if before_hopper else {})


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "policy"),
    [
        ("atomic_queue", "atomic-queue:gathering=serial"),
        ("atomic_queue", "atomic-queue:gathering=serial,items=4,threads=512,storage=pages"),
        ("atomic_queue", "atomic-queue:items=4"),
        ("degree_classes", "degree-classes:items=4,threads=512"),
    ],
)
def test_queues_in_registers_take_no_local_memory(source: str, policy: str) -> None:
    parsed = parse(policy)
    options = defines(int(parsed.threads), policy_constants(parsed))
    _, log = compiled(lab_source(source, options), "sm_90")
    found = functions(log)
    assert set(found) == SMALL_KERNELS[lab_source(source)]
    assert {name: (one.stack, one.spilled) for name, one in found.items() if one.stack or one.spilled} == {}


@pytest.mark.full
@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=[] if arch == "sm_90" else pytest.mark.long) for arch in ARCHITECTURES]
)
def test_kernels_that_launch_kernels_are_linked(arch: str) -> None:
    _skip_without_linker()
    cubin, log = compiled(LAUNCHING, arch)
    assert cubin.startswith(b"\x7fELF")
    # The device runtime's part of the code.
    assert len(cubin) > 200_000
    found = functions(log)
    assert {name for name in found if name.startswith("dbfs")} == LAUNCHING_KERNELS
    assert {name: function.spilled for name, function in found.items() if function.spilled} == {}


def _skip_without_linker() -> None:
    try:
        module.linker_version()
        module.device_runtime()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.full
def test_kernels_that_launch_kernels_compile_without_a_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "link", lambda cubin, arch, name: cubin)
    cubin, _ = compile_cubin(LAUNCHING, "sm_90")
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
    _, log = compiled(SUMMARY, "sm_90")
    shared = functions(log)["dbfs_summary"].shared
    assert shared > 0
    assert shared + 8 * SHARED_BINS <= SHARED_BYTES


def test_every_source_is_declared_once_and_compiled_here() -> None:
    variants = [variant.source for variant in VARIANTS]
    declared = sources()
    assert len(declared) == len(set(declared))
    assert set(declared) == {*SMALL_KERNELS, LAUNCHING, *variants}
    paths = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.cu")}
    assert {source.path for source in declared} == paths


@pytest.mark.full
def test_spills_would_be_seen() -> None:
    """With half the registers the kernel spills, and `functions` finds the spills in the log."""
    crowded = Variant(gang=False, predecessors=False, blocks_per_sm=2)
    _, log = compiled(crowded.source, "sm_90")
    found = functions(log)["dbfs_resident"]
    assert found.spilled > 0
    assert found.registers == 32


def test_an_error_of_the_compiler_names_the_place() -> None:
    with pytest.raises(RuntimeError, match=r"summary\.cu for sm_90: NVRTC_ERROR_COMPILATION\n(?s:.)*DBFS_PREDECESSORS"):
        compile_cubin(replace(SUMMARY, defines=()), "sm_90")


def with_layout(source: Source, text: str) -> Source:
    """Return a source with another text of the generated header."""
    return replace(source, generated=((layout.HEADER_NAME, text),))


@pytest.mark.parametrize("struct", ["Csr", "Peer", "LevelRecord", "HostView", "Line", "Slot", "Control", "Params"])
def test_a_wrong_offset_or_size_does_not_compile(struct: str) -> None:
    """A header that expects another size, or another offset of the last field, does not compile."""
    *_, offset = re.finditer(rf"DBFS_OFFSETOF\({struct}, (\w+)\) == (\d+)", layout.HEADER)
    size = re.search(rf"sizeof\({struct}\) == (\d+)", layout.HEADER)
    assert size is not None
    for found, message in ((offset, f"offset of {struct}::{offset[1]}"), (size, f"size of {struct}")):
        at, end = found.span(found.lastindex or 0)
        wrong = f"{layout.HEADER[:at]}{int(layout.HEADER[at:end]) + 8}{layout.HEADER[end:]}"
        with pytest.raises(RuntimeError, match=f'static assertion failed with "{message}"'):
            compile_cubin(with_layout(SUMMARY, wrong), "sm_90")


def test_fields_in_another_order_do_not_compile() -> None:
    swapped = layout.HEADER.replace("u32 rank;", "u32 swap;").replace("u32 ranks;", "u32 rank;")
    swapped = swapped.replace("u32 swap;", "u32 ranks;")
    with pytest.raises(RuntimeError, match='static assertion failed with "offset of Params::rank"'):
        compile_cubin(with_layout(SUMMARY, swapped), "sm_90")


def test_another_header_that_is_included_is_another_file_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "PACKAGE", tmp_path)
    texts = {
        "room.cu": '#include "own.cuh"\n  #  include "generated/made.cuh"\n#include <cuda.h>\n',
        "own.cuh": '#include "deep.cuh"\n',
        "deep.cuh": '#include "own.cuh"\nint deep;\n',
        "other.cuh": "int other;\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    source = Source("room.cu", ("-DA=1",), generated=(("generated/made.cuh", "int made;"), ("generated/rest.cuh", "")))
    assert list(source.headers()) == ["own.cuh", "generated/made.cuh", "deep.cuh"]
    before = cubin_path(source, "sm_90")
    (tmp_path / "other.cuh").write_text("int changed;\n")
    unrelated = replace(source, generated=(source.generated[0], ("generated/rest.cuh", "int changed;")))
    assert cubin_path(source, "sm_90") == cubin_path(unrelated, "sm_90") == before
    others = [replace(source, generated=(("generated/made.cuh", "int changed;"),)), replace(source, defines=("-DA=2",))]
    found = {before, cubin_path(source, "sm_80"), *(cubin_path(other, "sm_90") for other in others)}
    for name in ("room.cu", "own.cuh", "deep.cuh"):
        (tmp_path / name).write_text(texts[name] + "int changed;\n")
        found.add(cubin_path(source, "sm_90"))
        (tmp_path / name).write_text(texts[name])
    assert len(found) == 7
    (tmp_path / "deep.cuh").unlink()
    with pytest.raises(FileNotFoundError, match=r"deep\.cuh"):
        cubin_path(source, "sm_90")


def test_an_architecture_nvrtc_does_not_know() -> None:
    with pytest.raises(RuntimeError, match=r"summary\.cu for sm_1: .*\n(?s:.)*gpu-architecture"):
        compile_cubin(SUMMARY, "sm_1")


def test_a_compiled_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBFS_KERNEL_CACHE", str(tmp_path))
    path = cached_cubin(SUMMARY, "sm_90")
    assert path.parent == tmp_path
    path.write_bytes(b"kept")
    assert cached_cubin(SUMMARY, "sm_90") == path
    assert path.read_bytes() == b"kept"
    assert cached_cubin(SUMMARY, "sm_80") != path
    assert {made.suffix for made in tmp_path.iterdir()} == {".cubin"}


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(BackendUnavailableError, match="NVRTC, which compiles the kernels, is not installed"):
        compile_cubin(SUMMARY, "sm_90")
