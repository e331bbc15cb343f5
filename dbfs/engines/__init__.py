"""Engines: ways to run the levels of a traversal. One interface, chosen here and nowhere else."""

from dbfs.engines.interface import Engine, HeldLabels, KeptLabels, LevelReport, Outcome, Progress
from dbfs.engines.resident import ResidentEngine
from dbfs.engines.taskgraph import TaskGraphEngine
from dbfs.errors import InvalidOptionError

ENGINES = ("auto", "resident", "taskgraph")

__all__ = ["ENGINES", "Engine", "HeldLabels", "KeptLabels", "LevelReport", "Outcome", "Progress", "choose"]


def choose(name: str) -> Engine:
    """The engine of that name; ``auto`` is the resident one, since every gang can exchange at least over comms.

    Raises:
        InvalidOptionError: no such engine.
    """
    if name not in ENGINES:
        raise InvalidOptionError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    return TaskGraphEngine() if name == "taskgraph" else ResidentEngine()
