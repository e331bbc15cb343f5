"""What a strategy of the laboratory needs of a graph, and of a call's other options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dbfs.errors import InvalidOptionError
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import require_options
from dbfs_workers.base.text import counted
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.features.lab.strategies import STRATEGIES, parse

# The engine that runs strategies, and the name of the strategy that is the engine itself.
_ENGINE: Final = "resident"


def chosen_by(
    graph: StripedGraph, strategy: str, max_depth: int | None, direction: str, engine: str
) -> Callable[[tuple[int, ...], tuple[int, ...]], ByStrategy | None]:
    """Return what ``Graph.search`` takes as ``chosen``. Arguments and errors as of ``Graph.bfs``."""

    def purpose(sources: tuple[int, ...], targets: tuple[int, ...]) -> ByStrategy | None:
        plain = max_depth is None and not targets and direction == "auto"
        require_options(graph, direction, max_depth)
        return _purpose(graph, strategy, len(sources), plain=plain, engine=engine)

    return purpose


def _purpose(graph: StripedGraph, strategy: str, sources: int, *, plain: bool, engine: str) -> ByStrategy | None:
    """Check a strategy against the graph and the other options; return the run's purpose, None for the engine."""
    name = parse(strategy).strategy
    found = STRATEGIES[name]
    if engine not in ("auto", _ENGINE):
        raise InvalidOptionError(f"strategy={strategy!r} runs within the resident engine, not engine={engine!r}")
    if name == _ENGINE:
        return None
    in_grid = "" if graph.grid is None else f" in a {graph.grid} grid"
    here = f"{graph.name} is on {counted(graph.ranks, 'rank')}{in_grid}, backend {graph.backend}"
    layout = found.layout.replace("p", str(graph.ranks))
    if found.device == "gpu" and graph.backend != "cuda":
        wanted, of = ("GPUs", f"layout={layout!r}") if found.grid else ("one GPU", "ranks=1")
        others = [each.name for each in STRATEGIES.values() if each.device != "gpu" and each.grid == found.grid]
        raise InvalidOptionError(
            f"strategy {name} needs a graph on {wanted}, dbfs.load(..., {of}, backend='cuda'); {here}. "
            f"Strategies for CPU cores: {', '.join(others)}"
        )
    if found.device == "cpu" and graph.backend != "cpu":
        raise InvalidOptionError(
            f"strategy {name} needs a graph on one CPU rank, dbfs.load(..., ranks=1, backend='cpu'); {here}"
        )
    if found.grid and layout not in (graph.layout, f"2d:{graph.grid}"):
        raise InvalidOptionError(f"strategy {name} needs a grid of ranks, dbfs.load(..., layout={layout!r}); {here}")
    if not found.grid and (graph.ranks > 1 or graph.layout != "1d"):
        raise InvalidOptionError(f"strategy {name} needs a graph on one rank, dbfs.load(..., ranks=1); {here}")
    if found.device == "gpu" and graph.exchange != "cuda_ipc" and not (found.grid and graph.ranks == 1):
        raise InvalidOptionError(f"strategy {name} needs exchange='cuda_ipc', not {graph.exchange!r}")
    if sources != 1:
        raise InvalidOptionError(f"strategy {name} takes one source, not {sources}")
    if not plain:
        raise InvalidOptionError(f"strategy {name} takes no max_depth, no targets, and no direction but auto")
    return ByStrategy(strategy)
