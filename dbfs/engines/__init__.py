"""Engines: ways to run the levels of a traversal, behind one interface (``Engine``).

In: a gang, a graph's record and a ``RunSpec`` of the traversals. Out: one ``Outcome`` for each; the labels
stay on the workers. ``choose`` is the only place that selects an engine.
"""

from collections.abc import Callable, Mapping

from dbfs import config
from dbfs.engines.interface import Engine, LevelReport, Outcome, Progress, PublishedLabels
from dbfs.errors import InvalidOptionError

__all__ = ["Engine", "Engines", "LevelReport", "Outcome", "Progress", "PublishedLabels", "choose", "names"]

Engines = Mapping[str, Callable[[], Engine]]
"""What makes an engine, by the engine's name; the first engine is what ``auto`` stands for."""


def names(engines: Engines) -> tuple[str, ...]:
    """Return what the option ``engine`` may be."""
    return ("auto", *engines)


def choose(engines: Engines, name: str, layout: str) -> Engine:
    """Return the engine of that name; ``auto`` is that of ``dbfs.engine``.

    ``dbfs.engine`` is ``auto`` by default: the first engine.

    Raise ``InvalidOptionError`` if there is none, or if it does not have the graph's layout.
    """
    known = names(engines)
    if name not in known:
        raise InvalidOptionError(f"unknown engine {name!r}; choose one of {', '.join(known)}")
    named = f"engine={name!r}"
    if name == "auto":
        name = config.choice("engine", known)
        named = f"dbfs.engine: {name}"
    engine = engines[next(iter(engines)) if name == "auto" else name]()
    if engine.stripes_only and layout != "1d":
        raise InvalidOptionError(f"{named} has no 2-D partitions; load the graph with layout='1d'")
    return engine
