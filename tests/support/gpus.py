"""What tests want of the machine's GPUs: they skip, visibly counted, where it is not there."""

import importlib.util
from typing import Any

import distributed
import pytest

from dbfs_workers.gpus import visible_gpus

GPUS = len(visible_gpus())


def needs_gpu(*packages: str) -> list[pytest.MarkDecorator]:
    """Marks of tests that need a GPU and Python packages."""
    lacking = [name for name in packages if importlib.util.find_spec(name) is None]
    return [
        pytest.mark.gpu,
        pytest.mark.skipif(not GPUS, reason="there is no GPU"),
        pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}"),
    ]


def on_gpu(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - pytest's word
    """A parameter of tests that need a GPU and CuPy; ranks share the GPU."""
    return pytest.param(*values, marks=needs_gpu("cupy"), id=id)


def four_on_one_gpu() -> distributed.Client:
    """A local cluster of four workers that all see the first GPU only."""
    return distributed.Client(n_workers=4, threads_per_worker=1, dashboard_address=None, memory_limit=0)
