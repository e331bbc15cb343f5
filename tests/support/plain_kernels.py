"""A program that compares each call of a plain kernel as Python with the compiled kernel, and prints the names."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dbfs
from dbfs_workers.base import compiling
from dbfs_workers.base.jit import Kernel

compared: dict[str, int] = {}
compiled: dict[str, Kernel] = {}


def twin_of(kernel: Kernel) -> Kernel:
    """Return the kernel once more, compiled: the kernel itself stays uncompiled, so that all its calls come here."""
    if kernel.name not in compiled:
        twin = Kernel(kernel.py_func, kernel.signature, kernel.targetoptions)
        twin.ready()
        compiled[kernel.name] = twin
    return compiled[kernel.name]


def copied(value: Any) -> Any:
    """Return a copy of an argument; what was read-only is so in the copy."""
    if isinstance(value, tuple):
        fields = map(copied, value)
        return type(value)(*fields) if hasattr(value, "_fields") else tuple(fields)
    if not isinstance(value, np.ndarray):
        return value
    made = value.copy()
    made.flags.writeable = value.flags.writeable
    return made


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other))


def as_python(kernel: Kernel, *arguments: Any) -> Any:
    given = copied(arguments)
    result, expected = run(kernel, *arguments), twin_of(kernel)(*given)
    assert type(result) is type(expected), (kernel.name, result, expected)
    assert same(result, expected), (kernel.name, result, expected)
    assert same(arguments, given), kernel.name
    compared[kernel.name] = compared.get(kernel.name, 0) + 1
    return result


def traverse(graph: dbfs.Graph) -> None:
    ids = list(graph.ids())
    for direction in ("auto", "top-down", "bottom-up"):
        result = graph.bfs(ids[0], direction=direction, predecessors=True, validate=True)
        result.distances()
        result.path_to(ids[-1])
        result.predecessors()


def main(folder: Path) -> None:
    with dbfs.connect(
        n_workers=2, threads_per_worker=1, processes=False, backend="cpu", dashboard_address=None
    ) as client:
        random = np.random.default_rng(1)
        for n, m in ((2, 3), (70, 300)):
            src, dst = random.integers(0, n, (2, m))
            sparse = random.choice(2**40, n, replace=False)
            names = np.array([f"{chr(97 + i % 26) * (i % 12)}{i}" for i in range(n)])
            for ids in (np.arange(n), np.arange(n) + 1, sparse, names):
                for directed in (False, True):
                    lines = "\n".join(f"{u},{v}" for u, v in zip(ids[src], ids[dst], strict=True))
                    path = folder / f"edges-{n}.csv"
                    path.write_text(f"source,target\n{lines}\n")
                    for ranks, edges in ((1, path), (2, (ids[src], ids[dst]))):
                        options: dict[str, Any] = {"directed": directed, "in_edges": directed, "ranks": ranks}
                        with dbfs.load(edges, client=client, progress=False, **options) as graph:
                            traverse(graph)
        many = np.arange(1200).astype(str)
        dbfs.load((many[1:], many[:-1]), client=client, ranks=1, progress=False).unload()
        dbfs.load("uniform:n=50,m=200", edge_columns=["weight"], client=client, ranks=1, progress=False).unload()
        star = (np.zeros(9000, np.int64), np.arange(1, 9001))
        with dbfs.load(star, client=client, ranks=1, progress=False) as graph:
            traverse(graph)
            traverse(graph.where(without=[9000]))


if __name__ == "__main__":
    run = Kernel.as_python
    Kernel.as_python = as_python  # type: ignore[method-assign, assignment]
    Kernel._pays_in_python = lambda kernel, arguments: kernel.plain  # type: ignore[method-assign, assignment]
    # Kernels that are loaded ahead, or call others compiled, are not seen.
    compiling.prepare = lambda wanted: None
    compiling.loaded = lambda wanted: False
    with TemporaryDirectory() as top:
        main(Path(top))
    print("\n".join(sorted(compared)))
