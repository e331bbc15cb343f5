"""Engines: two ways to run the levels of a traversal, behind one interface (``Engine``).

In: a gang, a graph's record and a ``RunSpec`` of the traversals. Out: one ``Outcome`` for each; the labels
stay on the workers. ``choose`` is the only place that selects an engine.
"""

from dbfs import config
from dbfs.engines.interface import Engine, LevelReport, Outcome, Progress, PublishedLabels
from dbfs.engines.resident import ResidentEngine
from dbfs.errors import InvalidOptionError
from dbfs.features.taskgraph.engine import TaskGraphEngine

ENGINES = ("auto", "resident", "taskgraph")

__all__ = ["ENGINES", "Engine", "LevelReport", "Outcome", "Progress", "PublishedLabels", "choose"]


def choose(name: str, layout: str) -> Engine:
    """Return the engine of that name; ``auto`` is that of ``dbfs.engine``.

    ``dbfs.engine`` is ``auto`` by default: the resident engine, since every gang can exchange directly.

    Raise ``InvalidOptionError`` if there is none, or if it does not have the graph's layout.
    """
    if name not in ENGINES:
        raise InvalidOptionError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    named = f"engine={name!r}"
    if name == "auto":
        name = config.choice("engine", ENGINES)
        named = f"dbfs.engine: {name}"
    if name == "taskgraph" and layout == "2d":
        raise InvalidOptionError(f"{named} has no 2-D partitions; load the graph with layout='1d'")
    return TaskGraphEngine() if name == "taskgraph" else ResidentEngine()
