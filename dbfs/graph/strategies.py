"""The check that a graph and the options of a call suit a strategy of the laboratory."""

from __future__ import annotations

from typing import Protocol

from dbfs.errors import InvalidOptionError
from dbfs.lab import STRATEGIES, parse

_ENGINE = "resident"


class Place(Protocol):
    """A graph, as to where it is. Attributes as of ``Graph``."""

    name: str
    backend: str
    exchange: str
    layout: str

    @property
    def ranks(self) -> int:
        """Number of its ranks."""
        ...


def require_strategy(graph: Place, strategy: str, sources: int, *, predecessors: bool, plain: bool, engine: str) -> str:
    """Check a strategy against the graph and the other options; return the strategy of the spec, empty for the engine.

    Args:
        graph: the graph.
        strategy: a strategy with its options, as callers write it.
        sources: number of sources.
        predecessors: whether parents are recorded.
        plain: whether the call has no bound on the depth, no targets, and the direction ``auto``.
        engine: the engine that the call names.

    Raises:
        InvalidOptionError: the strategy is unknown, does not run on this graph, or does not take another option.
    """
    name = parse(strategy).strategy
    found = STRATEGIES[name]
    if engine not in ("auto", _ENGINE):
        raise InvalidOptionError(f"strategy={strategy!r} runs within the resident engine, not engine={engine!r}")
    if name == _ENGINE:
        return ""
    here = f"{graph.name} is on {graph.ranks} rank{'s' * (graph.ranks > 1)}, backend {graph.backend}"
    if found.device == "gpu" and graph.backend != "cuda":
        raise InvalidOptionError(
            f"strategy {name} needs a graph on one GPU, dbfs.load(..., ranks=1, backend='cuda'); {here}. "
            f"Strategies for CPU cores: {', '.join(each.name for each in STRATEGIES.values() if each.device != 'gpu')}"
        )
    if found.device == "cpu" and graph.backend != "cpu":
        raise InvalidOptionError(
            f"strategy {name} needs a graph on one CPU rank, dbfs.load(..., ranks=1, backend='cpu'); {here}"
        )
    if graph.ranks > 1 or graph.layout != "1d":
        raise InvalidOptionError(f"strategy {name} needs a graph on one rank, dbfs.load(..., ranks=1); {here}")
    if graph.backend == "cuda" and graph.exchange != "cuda_ipc":
        raise InvalidOptionError(f"strategy {name} needs exchange='cuda_ipc', not {graph.exchange!r}")
    if sources != 1:
        raise InvalidOptionError(f"strategy {name} takes one source, not {sources}")
    if not plain:
        raise InvalidOptionError(f"strategy {name} takes no max_depth, no targets, and no direction but auto")
    if predecessors and not found.predecessors:
        raise InvalidOptionError(f"strategy {name} records no predecessors")
    return strategy
