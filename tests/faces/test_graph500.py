"""The Graph500 benchmark: its statistics against other computations of them, its output line by line, whole runs."""

import importlib
import json
import math
import re
import statistics as independent
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest
import scipy.sparse.csgraph
from click.testing import CliRunner, Result

import dbfs
from dbfs.assembly import Graph
from dbfs.cli import main
from dbfs.errors import GraphTooLargeError, InvalidOptionError, InvalidOptionTypeError
from dbfs.graph500.benchmark import Search
from dbfs.graph500.output import block, statistics, summary
from tests.support import oracle

MODULE = importlib.import_module("dbfs.graph500.benchmark")

# What the reference code prints, line by line, and in C's notation how.
REFERENCE = """\
SCALE:                          %d
edgefactor:                     %d
NBFS:                           %d
graph_generation:               %g
num_mpi_processes:              %d
construction_time:              %g
bfs  min_time:                  %g
bfs  firstquartile_time:        %g
bfs  median_time:               %g
bfs  thirdquartile_time:        %g
bfs  max_time:                  %g
bfs  mean_time:                 %g
bfs  stddev_time:               %g
min_nedge:                      %.11g
firstquartile_nedge:            %.11g
median_nedge:                   %.11g
thirdquartile_nedge:            %.11g
max_nedge:                      %.11g
mean_nedge:                     %.11g
stddev_nedge:                   %.11g
bfs  min_TEPS:                  %g
bfs  firstquartile_TEPS:        %g
bfs  median_TEPS:               %g
bfs  thirdquartile_TEPS:        %g
bfs  max_TEPS:                  %g
bfs  harmonic_mean_TEPS:     !  %g
bfs  harmonic_stddev_TEPS:      %g
bfs  min_validate:              %g
bfs  firstquartile_validate:    %g
bfs  median_validate:           %g
bfs  thirdquartile_validate:    %g
bfs  max_validate:              %g
bfs  mean_validate:             %g
bfs  stddev_validate:           %g"""
NAMES = [line.split(":")[0] for line in REFERENCE.splitlines()]


def with_kernel_3(output: str) -> str:
    """What it prints with -DSSSP: after the lines of each group for bfs the same for sssp."""
    groups: dict[str, list[str]] = {}
    for line in output.splitlines():
        name = line.split(":")[0]
        groups.setdefault(name.rsplit("_", 1)[1] if name.startswith("bfs") else name, []).append(line)
    return "\n".join(
        line
        for lines in groups.values()
        for line in [*lines, *(each.replace("bfs ", "sssp", 1) for each in lines if each.startswith("bfs"))]
    )


def made_up(count: int, *, sssp: bool = False) -> dbfs.Graph500Result:
    generator = np.random.default_rng(count)
    searches = tuple(
        Search(
            key, *generator.lognormal(-3, 2, 1).tolist(), int(generator.integers(1, 2**40)), float(generator.random())
        )
        for key in range(count)
    )
    shortest = tuple(replace(search, seconds=3 * search.seconds) for search in searches) if sssp else ()
    return dbfs.Graph500Result(28, 16, 72, "cpu", "tcp", "degree", 37.5642, 19.833249, searches, shortest)


def parse(text: str) -> dict[str, float]:
    """As tools read it: a name, a colon, blanks, perhaps a mark, a number."""
    lines = [re.fullmatch(r"(\S+(?: +\S+)?):\s+(?:!\s+)?(\S+)", line) for line in text.splitlines()]
    return {line[1]: float(line[2]) for line in lines if line}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 64, 65])
def test_statistics_against_independent_ones(count: int) -> None:
    values = np.random.default_rng(count).lognormal(0, 3, count)
    found = summary(values.tolist())
    assert (found["min"], found["max"]) == (values.min(), values.max())
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["median"] == pytest.approx(np.median(values))
    assert found["stddev"] == pytest.approx(np.std(values, ddof=1) if count > 1 else 0)
    # SciPy and NumPy know the reference's quartile as the averaged inverse of the distribution function.
    for name, share in (("firstquartile", 0.25), ("thirdquartile", 0.75)):
        assert found[name] == pytest.approx(np.quantile(values, share, method="averaged_inverted_cdf"))


def test_rates_are_harmonic() -> None:
    seconds, edges = [0.5, 0.25, 2.0, 1.0], [100, 300, 200, 400]
    rates = [200.0, 1200.0, 100.0, 400.0]
    found = statistics({"bfs": seconds}, edges, {"bfs": [1.0] * 4})
    assert found["bfs  harmonic_mean_TEPS"] == pytest.approx(independent.harmonic_mean(rates))
    assert found["bfs  min_TEPS"] == pytest.approx(100)
    assert found["bfs  max_TEPS"] == pytest.approx(1200)
    # The mean of the two next to it, as times per edge: 1/200 and 1/100, then 1/1200 and 1/400.
    assert found["bfs  firstquartile_TEPS"] == pytest.approx(1 / 0.0075)
    assert found["bfs  median_TEPS"] == pytest.approx(1 / 0.00375)
    assert found["bfs  thirdquartile_TEPS"] == pytest.approx(600)
    inverse = [1 / rate for rate in rates]
    spread = independent.stdev(inverse) / (independent.mean(inverse) ** 2 * math.sqrt(3))
    assert found["bfs  harmonic_stddev_TEPS"] == pytest.approx(spread)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_the_output_is_the_reference_codes(count: int) -> None:
    result = made_up(count)
    assert list(result.statistics) == NAMES
    assert str(result) == REFERENCE % tuple(result.statistics.values())


def test_the_output_of_kernel_3_is_the_reference_codes() -> None:
    result = made_up(5, sssp=True)
    lines = with_kernel_3(REFERENCE)
    assert "\nsssp harmonic_mean_TEPS:     !  %g\n" in lines
    assert list(result.statistics) == [line.split(":")[0] for line in lines.splitlines()]
    assert str(result) == lines % tuple(result.statistics.values())
    found = result.statistics
    assert found["sssp median_TEPS"] == pytest.approx(found["bfs  median_TEPS"] / 3)


def test_tools_read_the_output() -> None:
    result = made_up(64)
    text = str(result)
    read = parse(text)
    assert list(read) == NAMES
    assert all(read[name] == pytest.approx(value, rel=1e-5) for name, value in result.statistics.items())
    # As public harnesses look for rates.
    rates = dict(re.findall(r"(\w+_TEPS):\s+(\d+\.?\d*e?[+-]\d*)", text))
    assert float(rates["median_TEPS"]) == read["bfs  median_TEPS"]
    assert re.search(r"^num_mpi_processes:\s+(\d+)$", text, re.MULTILINE)[1] == "72"  # type: ignore[index]
    # A sample in the reference's format reads the same way.
    sample = block({"SCALE": 28, "bfs  harmonic_mean_TEPS": 1.47046e9, "min_nedge": 4294921166})
    assert sample.splitlines() == [
        "SCALE:                          28",
        "bfs  harmonic_mean_TEPS:     !  1.47046e+09",
        "min_nedge:                      4294921166",
    ]


@pytest.fixture
def invoke(client: distributed.Client) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["graph500", *arguments, "--scheduler", client.scheduler.address])

    return run


@pytest.mark.parametrize(
    ("scale", "ranks", "order"),
    [
        (10, 1, "given"),
        (10, 2, "degree"),
        pytest.param(11, 3, "degree", marks=pytest.mark.full),
        pytest.param(12, 4, "given", marks=pytest.mark.full),
    ],
)
def test_a_whole_run(
    invoke: Callable[..., Result], tmp_path: Path, leaves_nothing: None, scale: int, ranks: int, order: str
) -> None:
    out = tmp_path / "graph500.json"
    arguments = ("--scale", str(scale), "--ranks", str(ranks), "--roots", "8", "--edgefactor", "8")
    answer = invoke(*arguments, "--order", order, "--out", str(out))
    assert answer.exit_code == 0, answer.output
    read, written = parse(answer.stdout), json.loads(out.read_text())
    assert written["order"] == order
    assert list(read) == NAMES
    assert list(written["statistics"]) == [name.replace("bfs  ", "bfs_") for name in NAMES]
    assert f"{written['statistics']['bfs_median_TEPS']:g}" == f"{read['bfs  median_TEPS']:g}"
    assert {name: read[name] for name in ("SCALE", "edgefactor", "NBFS", "num_mpi_processes")} == {
        "SCALE": scale,
        "edgefactor": 8,
        "NBFS": 8,
        "num_mpi_processes": ranks,
    }
    assert all(read[name] > 0 for name in NAMES if "time" in name or "generation" in name)
    keys = [search["key"] for search in written["searches"]]
    assert len(set(keys)) == 8
    counts = edges_by_component(scale)
    assert [search["edges"] for search in written["searches"]] == [counts(key) for key in keys]
    assert read["min_nedge"] == min(map(counts, keys))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_whole_run_with_kernel_3(
    invoke: Callable[..., Result], tmp_path: Path, leaves_nothing: None, ranks: int
) -> None:
    out = tmp_path / "graph500.json"
    answer = invoke("--scale", "9", "--roots", "3", "--sssp", "--ranks", str(ranks), "--out", str(out))
    assert answer.exit_code == 0, answer.output
    read, written = parse(answer.stdout), json.loads(out.read_text())
    assert list(read) == [line.split(":")[0] for line in with_kernel_3(REFERENCE).splitlines()]
    assert read["sssp min_time"] > 0
    for search, weighed in zip(written["searches"], written["shortest_paths"], strict=True):
        assert (search["key"], search["edges"]) == (weighed["key"], weighed["edges"])


def test_shortest_paths_that_break_a_rule_end_the_run(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sssp = Graph.sssp

    def spoilt(self: Graph, *arguments: Any, **options: Any) -> Any:
        if self.n == 1024:
            return sssp(self, *arguments, **options)
        # The rules for a search that reaches all, and one that does not.
        result = sssp(self, *arguments, max_distance=1e-3, **options)
        monkeypatch.setattr(type(result), "farthest", None)
        return result

    monkeypatch.setattr(MODULE.Graph, "sssp", spoilt)
    with pytest.raises(dbfs.errors.ValidationError, match=r"shortest paths, .*, from \d+: .* shorter path"):
        dbfs.graph500(11, roots=2, sssp=True, client=client, ranks=2)


def edges_by_component(scale: int) -> Callable[[int], int]:
    """Input edges, self-loops left out, in a vertex's component, by SciPy."""
    src, dst = (
        np.concatenate(side) for side in zip(*(p.read() for p in dbfs.kronecker(scale, 8).cut(1000)), strict=True)
    )
    matrix = oracle.adjacency(1 << scale, src, dst, directed=False)
    component = scipy.sparse.csgraph.connected_components(matrix, directed=False)[1]
    counts = np.bincount(component[src[src != dst]], minlength=1 << scale)
    return lambda key: int(counts[component[key]])


def test_a_search_that_breaks_a_rule_ends_the_run(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = MODULE.load

    def load_and_spoil(*arguments: Any, **options: Any) -> Graph:
        graph: Graph = load(*arguments, **options)
        if graph.n < 2**11:
            return graph

        def spoil(dask_worker: distributed.Worker, key: object = graph.partition_keys[0]) -> None:
            # All edges that start on rank 0 are gone.
            partition = dask_worker.data[key]
            nothing = {"row_offsets": np.zeros_like(partition.row_offsets), "columns": partition.columns[:0]}
            dask_worker.data[key] = replace(partition, **nothing)

        graph.gang.client.run(spoil, workers=[graph.gang.addresses[0]])
        return graph

    monkeypatch.setattr(MODULE, "load", load_and_spoil)
    out = tmp_path / "graph500.json"
    answer = invoke("--scale", "11", "--ranks", "2", "--out", str(out))
    assert answer.exit_code == 3
    assert re.search(
        r"search .*, from \d+: kronecker:scale=11.*: .*rule 4: .*: vertices \d+, \d+ \(rank",
        answer.stderr,
    )
    assert "TEPS" not in answer.output
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scale", "0"], "kronecker: scale must be in 1..40, not 0"),
        (["--scale", "41"], "kronecker: scale must be in 1..40, not 41"),
        (["--scale", "9", "--edgefactor", "0"], "kronecker: edgefactor must be in 1..1048576, not 0"),
        (["--scale", "9", "--roots", "0"], "0 is not in the range x>=1"),
        (["--scale", "5"], "64 sources wanted, but kronecker:scale=5,edgefactor=16,seed1=2,seed2=3 has "),
        (["--scale", "9", "--ranks", "0"], "'--ranks': 0 is not in the range x>=1"),
        (["--scale", "9", "--out", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        ([], "Missing option '--scale'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(invoke: Callable[..., Result], arguments: list[str], words: str) -> None:
    answer = invoke(*arguments)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.output


@pytest.mark.full
def test_what_will_not_fit_says_what_would(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(
        GraphTooLargeError, match=r"scale=29.*need about [\d,]+ bytes.*may take [\d,]+ bytes.*"
    ) as refused:
        dbfs.graph500(29, client=client)
    largest = re.search(r"The largest scale that would fit is (\d+)$", str(refused.value))
    assert largest is not None
    assert 15 < int(largest[1]) < 29
    with pytest.raises(GraphTooLargeError, match=f"fit is {largest[1]}$"):
        dbfs.graph500(int(largest[1]) + 1, client=client)
    with pytest.raises(GraphTooLargeError, match=r"32 bits hold .*The largest scale that would fit is \d+$"):
        dbfs.graph500(40, client=client)
    with (
        dask.config.set({"dbfs.build.memory-share": 1e-9}),
        pytest.raises(GraphTooLargeError, match="No scale would fit"),
    ):
        dbfs.graph500(10, client=client)


def test_roots_are_a_count(client: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="roots must be at least 1, not 0"):
        dbfs.graph500(10, roots=0, client=client)
    with pytest.raises(InvalidOptionError, match="roots must be at least 0, not -1"):
        dbfs.graph500(10, roots=-1, client=client)
    with pytest.raises(InvalidOptionTypeError, match="roots must be an integer"):
        dbfs.graph500(10, roots=1.5, client=client)  # type: ignore[arg-type]
