"""The registry of strategies: what each does, what it teaches, its source, and the options that it takes."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from dbfs_workers.cuda.lab_layout import Culling, Gathering, Status
from dbfs_workers.errors import InvalidOptionError


def _words(kind: type[IntEnum]) -> tuple[str, ...]:
    """Return an enum's members as callers write them: ``SCAN_WARP_CTA`` is ``scan+warp+cta``."""
    return tuple(member.name.lower().replace("_", "+") for member in kind)


GATHERING: Final = _words(Gathering)
STATUS: Final = _words(Status)
CULLING: Final = _words(Culling)
CHOICES: Final = {"gathering": GATHERING, "status": STATUS, "culling": CULLING}
"""The options, with their values."""


@dataclass(frozen=True)
class Strategy:
    """One way to traverse.

    Attributes:
        name: its name in ``Graph.bfs(strategy=...)``.
        family: the paper or the kind that it belongs to.
        device: where it runs: ``gpu``, ``cpu`` or ``any``.
        does: what it does, in a sentence.
        teaches: what a comparison with it shows.
        source: paper and section.
        options: names of the options that it takes, of ``CHOICES``.
        predecessors: whether it can record predecessors.
    """

    name: str
    family: str
    device: str
    does: str
    teaches: str
    source: str
    options: tuple[str, ...] = ()
    predecessors: bool = True


_MERRILL: Final = "Merrill 2012"
_QUADRATIC: Final = "quadratic"
_QUEUES: Final = "Tödling 2019"
_BASELINE: Final = "baseline"
_ALL: Final = tuple(CHOICES)

_LIST: Final = (
    Strategy(
        "expand-contract",
        _MERRILL,
        "gpu",
        "One launch a level takes the vertex queue to the next one; neighbours never lie in memory.",
        "the least memory traffic of the four",
        "Merrill 2012, section 5.1",
        _ALL,
    ),
    Strategy(
        "contract-expand",
        _MERRILL,
        "gpu",
        "One launch a level takes the edge queue to the next one; vertices never lie in memory.",
        "the shortest way of a small level",
        "Merrill 2012, section 5.2",
        _ALL,
    ),
    Strategy(
        "two-phase",
        _MERRILL,
        "gpu",
        "A launch expands the vertex queue into an edge queue; a second contracts that into the next vertex queue.",
        "what phases of one kind of work are worth on large levels, at the cost of a launch",
        "Merrill 2012, section 5.3",
        _ALL,
    ),
    Strategy(
        "hybrid",
        _MERRILL,
        "gpu",
        "Contract-expand for small edge queues, two-phase for large ones.",
        "whether one can have the better of both at each level",
        "Merrill 2012, section 5.4",
        _ALL,
    ),
    Strategy(
        "masks",
        _QUADRATIC,
        "gpu",
        "One thread a vertex walks its list if the vertex is in the mask; a second launch makes the next mask.",
        "what looking at every vertex in every level costs, most of all where there are many levels",
        "Harish and Narayanan 2007, in Merrill 2012, section 5.6",
    ),
    Strategy(
        "warp-centric",
        _QUADRATIC,
        "gpu",
        "A warp takes 32 vertices of the graph, and all its lanes walk each list of the frontier together.",
        "what sharing long lists is worth where the frontier is found by looking at all vertices",
        "Hong et al. 2011, in Merrill 2012, section 5.6",
    ),
    Strategy(
        "matrix-vector",
        _QUADRATIC,
        "gpu",
        "A warp a row multiplies the transposed adjacency matrix with the frontier's vector, all of it in every level.",
        "what looking at every edge in every level costs",
        "Deng, Wang and Mu 2009, in Merrill 2012, section 5.6",
    ),
    Strategy(
        "status-array",
        _QUEUES,
        "gpu",
        "One thread a vertex of the graph compares its label with the level, and walks its list alone.",
        "the simplest kernel there is, and what it leaves idle",
        "Tödling 2019, the naive version",
    ),
    Strategy(
        "status-scan",
        _QUEUES,
        "gpu",
        "A launch makes a queue of all vertices whose label is the level; a second labels their neighbours.",
        "whether a scan of all labels is worth a queue without duplicates",
        "Liu and Huang 2015, in Tödling 2019",
        ("gathering",),
    ),
    Strategy(
        "atomic-queue",
        _QUEUES,
        "gpu",
        "Atomic claims of the neighbours; a prefix sum and one atomic operation a block give them places in the queue.",
        "what exact claims cost beside culling that lets some duplicates pass",
        "Tödling 2019, the queue",
        ("gathering",),
    ),
    Strategy(
        "degree-classes",
        _QUEUES,
        "gpu",
        "A queue and a launch for each class of vertices: a thread, a warp, a block or the grid walks a list.",
        "whether work sorted by degree beforehand is worth several launches a level",
        "Tödling 2019, the classes",
    ),
    Strategy(
        "hierarchical",
        _QUEUES,
        "gpu",
        "One block follows a small frontier over many levels, a block for each multiprocessor a larger one; "
        "the largest take a launch a level.",
        "what the launches of small levels cost, beside a barrier of a block or of the grid",
        "Luo, Wong and Hwu 2010, in Tödling 2019",
        ("gathering",),
    ),
    Strategy(
        "device-loop",
        _QUEUES,
        "gpu",
        "A kernel launches each level's kernel, and itself behind that: the host waits once in many levels.",
        "what a launch by a kernel costs, beside one by the host and beside a barrier",
        "Tödling 2019, dynamic parallelism",
        ("gathering",),
    ),
    Strategy(
        "child-kernels",
        _QUEUES,
        "gpu",
        "The thread that holds a long list launches a kernel for it; the block gathers the others.",
        "whether launches by need beat classes that were made beforehand",
        "Tödling 2019, dynamic parallelism",
        ("gathering",),
    ),
    Strategy(
        "sequential",
        _BASELINE,
        "cpu",
        "One core takes vertices from one queue and appends each unvisited neighbour to it.",
        "what one core does without any parallel work",
        "Merrill 2012, algorithm 1",
    ),
    Strategy(
        "scipy",
        _BASELINE,
        "cpu",
        "SciPy's breadth_first_order, and distances along its order.",
        "what a user of SciPy has already",
        "scipy.sparse.csgraph.breadth_first_order",
    ),
    Strategy(
        "resident",
        _BASELINE,
        "any",
        "This project's own engine: the same as no strategy.",
        "where the engine stands among the strategies",
        "docs/design/resident-kernel.md",
    ),
)

STRATEGIES: Final = {strategy.name: strategy for strategy in _LIST}
"""The strategies by name."""


@dataclass(frozen=True)
class Policy:
    """A strategy with its options.

    Attributes:
        strategy: the strategy's name.
        gathering: how a block shares adjacency lists, one of ``GATHERING``.
        status: where a kernel looks whether a vertex was visited, and how it labels one, of ``STATUS``.
        culling: which duplicates a block drops, one of ``CULLING``.
    """

    strategy: str
    gathering: str = "scan+warp+cta"
    status: str = "claims"
    culling: str = "warp+history"


def parse(text: str) -> Policy:
    """Return the policy of a text such as ``two-phase`` or ``two-phase:gathering=scan,culling=none``.

    Raises:
        InvalidOptionError: no strategy has the name, or the strategy has no such option, or the option no such value.
    """
    name, _, options = text.partition(":")
    if name not in STRATEGIES:
        raise InvalidOptionError(f"unknown strategy {name!r}; choose one of {', '.join(STRATEGIES)}")
    policy = Policy(name)
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        allowed = STRATEGIES[name].options
        if key not in allowed:
            takes = f"its options are {', '.join(allowed)}" if allowed else "it takes none"
            raise InvalidOptionError(f"strategy {name} has no option {key!r}; {takes}")
        if value not in CHOICES[key]:
            raise InvalidOptionError(
                f"strategy {name}: {key}={value} is not a choice; choose one of {', '.join(CHOICES[key])}"
            )
        policy = replace(policy, **{key: value})
    return policy
