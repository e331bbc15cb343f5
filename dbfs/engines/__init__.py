"""Engines: ways to run the levels of a traversal. One interface, chosen here and nowhere else."""

from dbfs.engines.interface import Engine, LevelReport, Outcome, Progress
from dbfs.engines.taskgraph import TaskGraphEngine
from dbfs.errors import InvalidOptionError

ENGINES = ("auto", "taskgraph")

__all__ = ["ENGINES", "Engine", "LevelReport", "Outcome", "Progress", "choose"]


def choose(name: str) -> Engine:
    """The engine of that name; ``auto`` is the fastest the gang can run.

    Raises:
        InvalidOptionError: no such engine.
    """
    if name not in ENGINES:
        raise InvalidOptionError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    return TaskGraphEngine()
