"""Launches have as many arguments as their kernels have parameters: CUDA reads past the end of fewer, and may crash."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.search.cuda import messages
from dbfs_workers.search.cuda.communicator import Tag
from dbfs_workers.search.cuda.launch_sizes import MOST_THREADS
from dbfs_workers.search.cuda.source import Source
from dbfs_workers.search.partition.stripe import Stripe

TAG: Tag = (1, 2, 3)
KERNEL = re.compile(r'extern "C" __global__ void(?: __launch_bounds__\([^)]*\))? dbfs_(\w+)\(([^)]*)\)')


class OnGpu(np.ndarray[Any, Any]):
    """An array with CuPy's way to its address."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def zeros(shape: Any, dtype: Any = np.uint32) -> OnGpu:
    return np.zeros(shape, dtype).view(OnGpu)


class Arrays:
    """Has an array under every name, unless the name was given."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __getattr__(self, name: str) -> OnGpu:
        return zeros(64)


class Recorder:
    """In place of ``Launches``: counts arguments, launches nothing."""

    def __init__(self, parameters: dict[str, int]) -> None:
        self.parameters = parameters
        self.launched: set[str] = set()

    def __call__(self, name: str, blocks: int, threads: int, *arguments: int) -> None:
        assert len(arguments) == self.parameters[name], name
        assert all(isinstance(argument, (int, np.integer)) for argument in arguments), name
        self.launched.add(name)


def module(source: Source) -> Any:
    """In place of a loaded module: a kernel is the number of its parameters."""
    counts = {name: parameters.count(",") + 1 for name, parameters in KERNEL.findall(source.text)}
    return SimpleNamespace(get_function=lambda name: counts[name.removeprefix("dbfs_")])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> messages.CudaMessages:
    cupy = SimpleNamespace(
        zeros=zeros,
        empty=zeros,
        cumsum=lambda values: np.cumsum(values).view(OnGpu),
        cuda=SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(ptr=0), runtime=SimpleNamespace(memsetAsync=lambda *_: None)
        ),
    )
    monkeypatch.setitem(__import__("sys").modules, "cupy", cupy)
    monkeypatch.setattr(messages, "load", module)
    monkeypatch.setattr(messages, "Launches", Recorder)
    return messages.CudaMessages(Stripe(1_000, 2), 0, lambda words: zeros(words, np.int64))


@pytest.mark.parametrize("parents", [None, zeros(64)], ids=["distances", "predecessors"])
def test_launches_have_the_arguments_of_their_kernels(sent: messages.CudaMessages, parents: OnGpu | None) -> None:
    labels: Any = Arrays(predecessors=parents)
    for size in (1, MOST_THREADS, MOST_THREADS + 1):
        scratch: Any = Arrays(
            partition=Arrays(parents=Arrays()),
            frontier=zeros(size),
            queues=(zeros(64), zeros(64)),
            current=0,
            first_id=0,
        )
        for edges, ahead in ((1, 0), (1, 1), (10**7, 0)):
            sent.expand(TAG, scratch, labels, 1, zeros(64), parents, edges, ahead)
            sent.contract(TAG, scratch, labels, 1, ahead, 9)
        sent.contract_large(zeros(64), parents, scratch, labels, 1)
        sent.pack(np.zeros(64, np.int64), zeros(64), parents)
        sent.absorb(zeros(64), scratch)
        sent.search(TAG, zeros(64), scratch, labels, 1)
        sent.measure(TAG, zeros(64), scratch)
    recorder: Any = sent._launch
    assert recorder.launched == set(recorder.parameters)
