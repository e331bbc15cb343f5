"""Insertion and deletion of batches of edges in the laboratory's linked pages, on a GPU of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import click
import numpy as np

from benchmarks import options
from benchmarks.lab_experiments import lists
from benchmarks.runner import Column, Results, seconds_of
from dbfs.base.units import format_bytes
from dbfs.errors import BackendUnavailableError
from dbfs_workers.base.gpus import own_gpu, own_gpu_name
from dbfs_workers.features.lab.device import Device, Gpu
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.strategies import Policy
from dbfs_workers.features.lab.tuning import Tuning


@dataclass(frozen=True)
class PageRates:
    """Rates of batches of random edges, which are inserted, and then deleted. The sort of a batch counts.

    Attributes:
        graph: the generator's spec.
        m: neighbours of all rows.
        csr_bytes, page_bytes: bytes of the graph in either form; pages without spare ones.
        fill: seconds to copy the graph to pages.
        batch: edges of a batch.
        inserted, deleted: millions of edges a second: medians.
    """

    graph: Annotated[str, Column()]
    m: Annotated[int, Column("", ",")]
    csr_bytes: Annotated[int, Column("CSR", format_bytes)]
    page_bytes: Annotated[int, Column("pages", format_bytes)]
    fill: Annotated[float, Column("fill ms", ".2f", times=1e3)]
    batch: Annotated[int, Column("", ",")]
    inserted: Annotated[float, Column("M insertions/s", ",.1f")]
    deleted: Annotated[float, Column("M deletions/s", ",.1f")]


@click.command()
@options.value("--graph", ("kronecker:scale=20",), "A generator; repeat for several.", multiple=True)
@options.value("--batch", (1 << 16, 1 << 20, 1 << 23), "Edges of a batch.", click.IntRange(1), multiple=True)
@options.count("--repeats", 5, "Batches of each size, after one that does not count.")
@options.json
def lab_updates(graph: tuple[str, ...], batch: tuple[int, ...], repeats: int, file: str | None) -> None:
    """Measure insertions and deletions in linked pages, as in faimGraph, on this process's GPU.

    Example: dbfs bench lab-updates --graph corpus:kron_g500-logn20
    """
    if own_gpu() is None:
        raise BackendUnavailableError("dbfs bench lab-updates needs a GPU, and this process sees none")
    device = Gpu(Tuning().threads, policy_constants(Policy("degree-classes")))
    with Results("lab-updates", file, machine=own_gpu_name()) as results:
        rates = (row for spec in graph for row in measure(spec, batch, repeats, device))
        results.take("rates", rates, "Batches of edges in linked pages")


def measure(graph: str, batches: Sequence[int], repeats: int, device: Device) -> Iterator[PageRates]:
    """Measure the batches of each size on one graph, on a device."""
    xp: Any = device.xp
    csr = lists(graph)
    offsets, columns = xp.asarray(csr.row_offsets), xp.asarray(csr.columns)
    rows, spare = int(offsets.size) - 1, max(batches)
    LinkedPages(device, offsets, columns)
    fill, pages = seconds_of(LinkedPages, device, offsets, columns, spare)
    sizes = int(offsets.nbytes + columns.nbytes), pages.nbytes - 132 * spare
    random = np.random.default_rng(1)

    def rate(change: Callable[[Any], int], keys: Any) -> float:
        seconds, edges = seconds_of(change, keys)
        return edges / seconds / 1e6

    for batch in batches:
        found = []
        for _ in range(1 + repeats):
            src, dst = random.integers(0, rows, (2, batch), np.uint64)
            keys = xp.asarray(src << np.uint64(32) | dst)
            found.append((rate(pages.insert, keys), rate(pages.delete, keys)))
        inserted, deleted = (median(column) for column in zip(*found[1:], strict=True))
        yield PageRates(graph, int(columns.size), *sizes, fill, batch, inserted, deleted)
