"""Estimates: whether a graph fits, the bands of its build, and how often the build makes or reads all edges."""

import json
import lzma
import re
import sys
import unittest.mock
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dbfs
from dbfs.assembly import BuildOptions
from dbfs.building import memory
from dbfs.cli import main
from dbfs.cluster.local import shares
from dbfs.errors import EdgeInputError, FormatError, InvalidOptionError, TruncatedFileError
from dbfs.features.grid.building import estimate_on_gpu
from dbfs_workers.base import gpus
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.search.partition.stripe import Stripe

GIB = 2**30


def estimate(*arguments: str) -> str:
    """Return what the command prints."""
    answer = CliRunner().invoke(main, ["estimate", *arguments])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


@pytest.mark.parametrize(("memory", "bands", "gib"), [("300GiB", 1, 256), ("170 GiB", 2, 162), (139 * GIB, 3, 136)])
def test_bands_by_memory(memory: int | str, bands: int, gib: int) -> None:
    needed = dbfs.estimate("kronecker:scale=30", 2, backend="cuda", memory=memory)
    assert (needed.bands, needed.passes, needed.fits) == (bands, bands, True)
    assert needed.peak_bytes // GIB == gib
    assert [peak // GIB for peak in needed.peaks] == [256, 162, 136]
    assert ("built in" in str(needed)) == (bands > 1)


@pytest.mark.parametrize("order", ["given", "degree"])
def test_bins_and_validation_take_less_with_more_ranks(order: str) -> None:
    options = BuildOptions(keep_edges=True, order=order)
    one, many = (dbfs.estimate("kronecker:scale=22", ranks, options).run for ranks in (1, 16))
    assert 8 * (many["bins"] + many["validation"]) <= one["bins"] + one["validation"]
    # The degree order does not.
    assert ("placed order" in one) == ("placed order" in many) == (order == "degree")


def test_ranks_on_several_hosts_take_memory_for_each_other() -> None:
    one, two, apart = (dbfs.estimate("kronecker:scale=22", 4, hosts=hosts).run for hosts in (1, 2, 4))
    assert "frames" not in one
    assert {name: size for name, size in two.items() if name != "frames"} == one
    # Each of 2 remote ranks has 2 sets of bins for 2 ranks, n_local / 8 rows with parents in each, and 2 slices.
    n_local = 2**20
    assert 0 < two["frames"] - 2 * (2 * 2 * (n_local // 8) * 8 + 2 * n_local // 8) < 2**20
    assert 0 < apart["frames"] - 3 * (2 * (n_local // 8) * 8 + 2 * n_local // 8) < 2**20
    assert "of 2 hosts" in estimate("kronecker:scale=12", "--ranks", "4", "--hosts", "2")
    with pytest.raises(InvalidOptionError, match="hosts must be at least 1, not 0"):
        dbfs.estimate("kronecker:scale=22", 4, hosts=0)


def test_a_graph_that_does_not_fit() -> None:
    needed = dbfs.estimate("kronecker:scale=30", 2, backend="cuda", memory="100GiB")
    assert (needed.bands, needed.fits) == (3, False)
    assert needed.peak_bytes == min(needed.peaks)


def test_passes_over_the_edges() -> None:
    def passes(backend: str, memory: str | None = None, **layout: bool | str) -> int:
        options = BuildOptions(**layout)  # type: ignore[arg-type]
        return dbfs.estimate("kronecker:scale=30", 2, options, backend=backend, memory=memory).passes

    assert passes("cpu") == 1
    assert passes("cpu", order="degree") == 2
    assert passes("cuda", "300GiB", order="degree") == 2
    assert passes("cuda", "200GiB", order="degree") == 3
    # Kept edges are made once, and the graph is built of them.
    assert passes("cuda", "210GiB", order="degree", keep_edges=True) == 1


def test_a_worker_may_take_a_share_of_its_limit() -> None:
    peak = dbfs.estimate("path:n=1000", 2).peak_bytes
    with dask.config.set({"dbfs.build.memory-share": 0.5}):
        assert dbfs.estimate("path:n=1000", 2, memory=2 * peak).fits is True
        assert dbfs.estimate("path:n=1000", 2, memory=2 * peak - 2).fits is False
    assert dbfs.estimate("path:n=1000", 2).fits is None


def test_an_estimate_leaves_a_worker_below_the_share_at_which_dask_pauses_it() -> None:
    peak = dbfs.estimate("path:n=1000", 2).peak_bytes
    with dask.config.set({"distributed.worker.memory.pause": 0.55}):
        assert dbfs.estimate("path:n=1000", 2, memory=2 * peak).fits is True
        assert dbfs.estimate("path:n=1000", 2, memory=2 * peak - 2).fits is False
    with dask.config.set({"distributed.worker.memory.pause": False}):
        assert dbfs.estimate("path:n=1000", 2, memory=int(peak / 0.9) + 2).fits is True


def test_results_that_fit() -> None:
    def results(memory: str | None, **layout: bool | str) -> int | None:
        options = BuildOptions(**layout)  # type: ignore[arg-type]
        return dbfs.estimate("star:n=1048576", 2, options, memory=memory).results

    with dask.config.set({"distributed.worker.memory.spill": 0.7, "distributed.worker.memory.pause": 0.8}):
        # 35 were held by workers of this limit, before the next was refused.
        few = results("512MiB")
        assert few is not None
        assert 30 < few < 40
        # 0.7 of the limit may be in use, and a result takes 8 bytes per row.
        more = results("1024MiB")
        assert more is not None
        assert abs(more - few - 0.7 * 512 / 4) <= 1
    with dask.config.set({"distributed.worker.memory.spill": False, "distributed.worker.memory.pause": False}):
        most = results("1024MiB")
        assert most is not None
        assert abs(most - more - 0.2 * 1024 / 4) <= 1
    assert results("100MiB") == 0
    assert results(None) is None


@pytest.mark.parametrize("memory", ["much", "", 0, -5, "0GiB", [1]])
def test_memory_must_be_bytes(memory: int | str) -> None:
    with pytest.raises(InvalidOptionError, match="memory must be bytes, or a text such as '80GB' or '139 GiB'"):
        dbfs.estimate("path:n=9", 2, memory=memory)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML of a machine with GPUs of 139, 78 and 139 GiB, the last one named by its UUID as well."""
    sizes = {0: 139 * GIB, 1: 78 * GIB, 2: 139 * GIB, "GPU-8f2": 139 * GIB}
    module = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def handle(gpu: int | str) -> int | str:
        if gpu not in sizes:
            raise NVMLError
        return gpu

    module.NVMLError = NVMLError  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByIndex = handle  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByUUID = handle  # type: ignore[attr-defined]
    module.nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(total=sizes[gpu])  # type: ignore[attr-defined]
    module.nvmlDeviceGetName = lambda gpu: f"GPU of {sizes[gpu] // GIB} GiB"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(gpus, "_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("nvml")
def test_the_memory_of_this_machines_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [size // GIB for size in gpus.memory_bytes()] == [139, 78, 139]
    assert dbfs.estimate("kronecker:scale=30", 2, backend="cuda").memory == 78 * GIB
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-8f2,7,1")
    assert [size // GIB for size in gpus.memory_bytes()] == [139, 139]
    assert dbfs.estimate("kronecker:scale=30", 2, backend="cuda").bands == 3
    assert dbfs.estimate("kronecker:scale=30", 2).memory is None


@pytest.mark.usefixtures("nvml")
def test_the_name_of_a_workers_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu, name in (("1", "GPU of 78 GiB"), ("GPU-8f2", "GPU of 139 GiB"), (None, None)):
        monkeypatch.setattr(gpus, "own_gpu", lambda gpu=gpu: gpu)
        assert gpus.own_gpu_name() == name


def test_without_nvml_the_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus.memory_bytes() == []
    assert gpus.own_gpu_name() is None


def test_the_command_says_what_the_build_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpus, "memory_bytes", list)
    graph = ("kronecker:scale=30", "--ranks", "2", "--backend", "cuda")
    assert estimate(*graph).endswith(
        "The build generates all edges once. These figures are of a build in one band; it takes 162.00 GiB in 2 bands "
        "or 136.00 GiB in 3 bands. With --memory BYTES this says whether the graph fits.\n"
    )
    assert estimate(*graph, "--memory", "139GiB").endswith(
        "It fits 139.00 GiB, built in 3 bands; one band would take 256.00 GiB. The build generates all edges 3 times. "
        "Clients can hold about 6 results with predecessors at once.\n"
    )
    assert estimate(*graph, "--memory", "100GiB").endswith(
        "It does not fit 100.00 GiB, not even built in 3 bands: take more ranks, or more memory per rank.\n"
    )
    found = json.loads(estimate(*graph, "--memory", "139GiB", "--json"))
    assert (found["bands"], found["passes"], found["fits"], found["memory"]) == (3, 3, True, 139 * GIB)
    assert found["peak"] == found["peaks"][2]
    # On CPU cores there are no bands.
    (tmp_path / "headed.graph").write_text("3 2\n2\n1 3\n2\n")
    read = estimate(str(tmp_path / "headed.graph"), "--ranks", "1", "--memory", "1GB", "--order", "degree")
    assert re.search(r"It fits 715.26 MiB. The build reads all edges twice. Clients .* [\d,]+ results .*\n$", read)
    assert json.loads(estimate(str(tmp_path / "headed.graph"), "--ranks", "1", "--directed", "--json"))["peak"] > 0


def test_numbered_ids_count() -> None:
    names = pa.table({"from": [f"user {v}" for v in range(1000)], "to": [f"user {v // 2}" for v in range(1000)]})
    needed = dbfs.estimate(names, 2)
    # An offset and the name of each id.
    table = sum(8 + len(f"user {v}") for v in range(1000))
    assert needed.partition["ids"] == -(-table // 2)
    assert needed.peak_bytes >= sum(needed.numbering.values()) > 8 * 500 + table // 2
    assert "numbering: " in str(needed)
    # The vertices themselves are the ids: they are numbered, and no table is kept.
    dense = dbfs.estimate((np.arange(999), np.arange(1, 1000)), 2)
    assert dense.numbering
    assert "ids" not in dense.partition
    assert "ids" not in dbfs.estimate(names, 2, BuildOptions(ids="dense")).partition
    assert not dbfs.estimate("path:n=9", 2).numbering


def test_the_vertices_of_a_table_that_the_workers_read(tmp_path: Path) -> None:
    path = tmp_path / "follows.parquet"
    names = [f"user {v:09}" for v in range(5000)]
    pq.write_table(pa.table({"from": names, "to": names[::-1]}), path, row_group_size=1000)
    with pytest.raises(EdgeInputError, match=r"follows.parquet: .* give the number of its distinct ids, vertices="):
        dbfs.estimate(path, 2)
    known, counted = dbfs.estimate(path, 2, vertices=5000), dbfs.estimate(pq.read_table(path), 2)
    # Only the bytes of input data that a table in memory sends to the workers differ.
    assert known.partition == counted.partition
    assert known.numbering["distinct ids"] == counted.numbering["distinct ids"]
    columns = ("--source-column", "from", "--target-column", "to")
    found = json.loads(estimate(str(path), "--ranks", "2", "--vertices", "5000", *columns, "--json"))
    assert found["numbering"] == known.numbering
    assert "numbering, or partition" in estimate(str(path), "--ranks", "2", "--vertices", "5000")
    with pytest.raises(InvalidOptionError, match=r"vertices= is for edges that are read by the workers; path:n=9"):
        dbfs.estimate("path:n=9", 2, vertices=9)
    with pytest.raises(InvalidOptionError, match="vertices must be at least 0, not -1"):
        dbfs.estimate(path, 2, vertices=-1)
    pq.write_table(pq.read_table(path)[:0], tmp_path / "empty.parquet")
    with pytest.raises(EdgeInputError, match=r"empty.parquet has no edges at its beginning"):
        dbfs.estimate(tmp_path / "empty.parquet", 2, vertices=5)


def test_the_edges_of_a_text_are_counted_in_samples(tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("# a comment\n1 2\n3 4\n5 7", encoding="ascii")
    needed = dbfs.estimate(short, 2, vertices=6)
    assert needed.sampled_edges == 3
    # As of the same edges in memory, but for the bytes that go to the workers.
    same = dbfs.estimate((np.array([1, 3, 5]), np.array([2, 4, 7])), 2)
    assert (needed.partition, needed.run) == (same.partition, same.run)
    assert same.sampled_edges is None
    # Lines grow by the way: samples at the beginning alone would make a million of them.
    pairs, far = b"1 2\n" * 250_000, b"1234567 1234567\n" * 250_000
    long = tmp_path / "long.txt"
    long.write_bytes(pairs + far)
    found = dbfs.estimate(long, 2, vertices=1000).sampled_edges
    assert found is not None
    assert 480_000 < found < 520_000
    (tmp_path / "folder").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "folder" / name).write_text("from,to\nann,bob\nbob,eve\n", encoding="ascii")
    answer = estimate(str(tmp_path / "folder"), "--ranks", "1", "--vertices", "3")
    assert "The build reads all edges once. Samples of the text make about 4 edges. With --memory" in answer
    found = json.loads(estimate(str(tmp_path / "folder"), "--ranks", "1", "--vertices", "3", "--json"))
    assert (found["sampled_edges"], "numbering" in found) == (4, True)
    with pytest.raises(EdgeInputError, match=r"short.txt: .* give the number of its distinct ids, vertices="):
        dbfs.estimate(short, 2)


@pytest.mark.parametrize(
    "suffix", [".gz", *(pytest.param(each, marks=pytest.mark.full) for each in (".xz", ".bz2", ".zst"))]
)
def test_the_edges_of_a_compressed_text_are_counted_at_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    def packed(name: str, text: bytes) -> Path:
        path = tmp_path / (name + suffix)
        with pa.output_stream(path, compression=None if suffix == ".xz" else "detect") as sink:
            sink.write(lzma.compress(text, preset=0) if suffix == ".xz" else text)
        return path

    short = packed("short.txt", b"# a comment\n1 2\n3 4\n5 6")
    needed = dbfs.estimate(short, 2, vertices=6)
    assert needed.sampled_edges == 3
    assert dbfs.estimate(packed("short.csv", b"from,to\na,b\nc,d\n"), 2, vertices=4).sampled_edges == 2
    monkeypatch.setattr("dbfs.edges.readers.lines._BEGINNING_BYTES", 2_500_000)
    pairs = np.random.default_rng(2).integers(0, 10**6, (300_000, 2)).tolist()
    long = packed("long.txt", "".join(f"{u} {v}\n" for u, v in pairs).encode())
    found = dbfs.estimate(long, 2, vertices=10**6).sampled_edges
    assert found is not None
    # bz2 compresses blocks of 900 kB, of which the last one read is taken for read up.
    assert 0.8 < found / 300_000 < 1.05
    long.write_bytes(long.read_bytes()[:1000])
    with pytest.raises((TruncatedFileError, FormatError), match=r"long.txt\..* stream"):
        dbfs.estimate(long, 2, vertices=10**6)


def test_what_updates_need() -> None:
    def needed(**options: bool | str) -> dbfs.Estimate:
        return dbfs.estimate("kronecker:scale=20", 2, BuildOptions(**options), mutable=True)  # type: ignore[arg-type]

    still, living = dbfs.estimate("kronecker:scale=20", 2), needed()
    assert still.update == {}
    assert living.partition == still.partition
    assert living.peak_bytes == still.partition_bytes + sum(still.run.values()) + sum(living.update.values())
    # The pages, of which the second version has no part of the first one's.
    assert living.update["next pages"] == living.update["pages"] + living.partition_bytes
    assert living.update["next pages"] < 2 * living.partition_bytes
    printed = estimate("kronecker:scale=20", "--ranks", "2", "--mutable", "--memory", "1GB")
    assert "next pages" in printed
    assert "build or run and update" in printed
    assert "does not fit" in estimate("kronecker:scale=20", "--ranks", "2", "--mutable", "--memory", "250MB")
    assert "It fits" in estimate("kronecker:scale=20", "--ranks", "2", "--memory", "250MB")
    assert needed(room=2**20).update["next pages"] > living.update["next pages"]
    rows = "kronecker:scale=10", "--ranks", "2", "--mutable", "--json"
    roomy = json.loads(estimate(*rows, "--room", "1000000"))
    assert roomy["partition"] != json.loads(estimate(*rows))["partition"]
    for words, options in {"layout='2d'": {"layout": "2d"}, "keep_edges=True": {"keep_edges": True}}.items():
        with pytest.raises(InvalidOptionError, match=words):
            needed(**options)  # type: ignore[arg-type]
    on_gpus = dbfs.estimate("kronecker:scale=20", 2, backend="cuda", mutable=True)
    assert on_gpus.update == {"next version": on_gpus.partition_bytes}
    pages = BuildOptions(storage="pages")
    on_pages = dbfs.estimate("kronecker:scale=20", 1, pages, backend="cuda", mutable=True)
    # 31 neighbours a page, a last page a row, a quarter more; a copy has 20 bytes an edge on its way.
    columns = on_pages.partition["columns"] // 4
    assert on_pages.update["pages"] == pytest.approx(8 * 2**20 + 1.25 * 132 * (columns / 31 + 2**20), rel=1e-3)
    assert on_pages.update["copy"] == 16 * 2**20 + 20 * columns
    there = ["--ranks", "1", "--backend", "cuda", "--mutable", "--storage", "pages"]
    assert "copy" in estimate("kronecker:scale=20", *there)
    refused: list[dict[str, Any]] = [{"ranks": 2}, {"backend": "cpu"}, {"mutable": False}]
    for other in (*refused, {"options": BuildOptions(in_edges=True, storage="pages")}):
        options: dict[str, Any] = {"ranks": 1, "backend": "cuda", "mutable": True, "options": pages}
        with pytest.raises(InvalidOptionError, match="storage='pages'"):
            dbfs.estimate(dbfs.rmat(9, directed=True), **options | other)
    both = dbfs.estimate(dbfs.rmat(20, directed=True), 2, BuildOptions(in_edges=True), mutable=True)
    one = dbfs.estimate(dbfs.rmat(20, directed=True), 2, mutable=True)
    assert both.update["next pages"] == 2 * one.update["next pages"]


def test_ranks_are_those_of_the_current_client_or_of_this_machine(client: distributed.Client) -> None:
    with client.as_current():
        assert dbfs.estimate("path:n=1000").ranks == 4
    with unittest.mock.patch.object(distributed.Client, "current", side_effect=ValueError):
        ranks = dbfs.estimate("path:n=1000").ranks
        assert ranks == shares(None, None)[0]
        assert f"on {ranks} rank" in estimate("path:n=1000")
        assert dbfs.estimate("path:n=1000", backend="cuda", memory="80GB").ranks == max(1, len(gpus.visible_gpus()))


def test_an_estimate_is_drawn_in_notebooks() -> None:
    drawn = dbfs.estimate("kronecker:scale=22", 4, memory="8 GiB")._repr_html_()
    for words in ("on 4 ranks", "partition", "<td>run</td>", "at most", "fits 6.00 GiB"):
        assert words in drawn
    assert "more than 768.00 KiB" in dbfs.estimate("kronecker:scale=22", 1, memory="1 MiB")._repr_html_()


@pytest.mark.parametrize("in_edges", [False, True])
def test_a_grid_on_gpus_has_the_partition_of_a_grid_on_cpus(in_edges: bool) -> None:
    stripe, grid = Stripe(1000, 6), GridLayout(3, 2)
    on_gpu = estimate_on_gpu(stripe, grid, 8000, in_edges=in_edges)
    on_cpu = memory.estimate_bytes(stripe, 8000, 0, in_edges=in_edges, ordered=False, layout=grid)
    assert (on_gpu.partition, on_gpu.result) == (on_cpu.partition, on_cpu.result)


@pytest.mark.parametrize(
    ("frees", "found"),
    [([640, 0], 640), ([0, 100, 300, 310, 700], 310), ([0, 100, 300, 311, 700, 0], 700), ([0, 0, 700], 0)],
)
def test_free_memory_is_read_until_it_no_longer_grows(
    frees: list[int], found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_RETRY_SECONDS", 0.0)
    reads = iter(frees)
    # A 64th of the bytes wanted is no growth: 10.
    assert memory._settled(lambda: [1000, next(reads)], 640) == [1000, found]


def test_the_bins_of_a_build_take_what_is_estimated() -> None:
    stripe, vertices = Stripe(1000, 1), np.arange(999)
    (edges,) = bin_edges(vertices, vertices + 1, stripe, symmetrise=True, name="path")
    needed = memory.estimate_bytes(stripe, edges.rows.size, 0, in_edges=False, ordered=False)
    assert needed.build["bins"] + needed.partition["columns"] == edges.rows.nbytes + edges.columns.nbytes
