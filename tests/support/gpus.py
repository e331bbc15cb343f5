"""Requirements of tests on the machine's GPUs. Where there is none, ``sizes`` leaves such tests out."""

import importlib.util
import math
from typing import Any

import distributed
import pytest

from dbfs_workers.base.gpus import visible_gpus
from dbfs_workers.search.members import led_traversals

GPUS = len(visible_gpus())
needs_nccl = pytest.mark.skipif(importlib.util.find_spec("nccl") is None, reason="nccl4py is not installed")


def needs_gpu(*packages: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that needs a GPU and Python packages."""
    lacking = [name for name in packages if importlib.util.find_spec(name) is None]
    return [
        pytest.mark.gpu,
        pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}"),
    ]


def needs(ranks: int) -> Any:
    """Return a parameter whose test needs a GPU for each rank."""
    return pytest.param(ranks, marks=pytest.mark.skipif(ranks > GPUS, reason=f"{ranks} GPUs wanted, {GPUS} there"))


def on_gpu(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - pytest's word
    """Return a parameter whose test needs a GPU and CuPy. The ranks of such tests share the GPU."""
    return pytest.param(*values, marks=needs_gpu("cupy"), id=id)


def four_on_one_gpu() -> distributed.Client:
    """Start a local cluster of four workers that share the first GPU."""
    return distributed.Client(n_workers=4, threads_per_worker=1, dashboard_address=None, memory_limit=0)


class Together(distributed.WorkerPlugin):  # type: ignore[misc]
    """Has all ranks make all traversals, on each worker of a cluster, those included that begin later."""

    def setup(self, worker: distributed.Worker) -> None:
        led_traversals._CROSSINGS = math.inf  # type: ignore[misc]
