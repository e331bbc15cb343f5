"""The registry of strategies: how each traverses, what a comparison with it shows, its source, and its options."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.features.lab.layout import Culling, Gathering, Neighbours, Status, Storage, Tiles


def _words(kind: type[IntEnum]) -> tuple[str, ...]:
    """Return an enum's members as callers write them: ``SCAN_WARP_CTA`` is ``scan+warp+cta``."""
    return tuple(member.name.lower().replace("_", "+") for member in kind)


GATHERING: Final = _words(Gathering)
STATUS: Final = _words(Status)
CULLING: Final = _words(Culling)
TILES: Final = _words(Tiles)
NEIGHBOURS: Final = _words(Neighbours)
GRID: Final = ("device", "c2050")
WIDTH: Final = ("32", "16", "8", "4")
ITEMS: Final = ("2", "1", "4")
THREADS: Final = ("256", "64", "128", "512")
WAIT: Final = ("chain", "level")
CHILDREN: Final = ("none", "long")
CLASSES: Final = ("4", "3")
SORTING: Final = ("exploring", "pass")
STORAGE: Final = _words(Storage)
CHOICES: Final = {
    "gathering": GATHERING,
    "status": STATUS,
    "culling": CULLING,
    "tiles": TILES,
    "neighbours": NEIGHBOURS,
    "grid": GRID,
    "width": WIDTH,
    "items": ITEMS,
    "threads": THREADS,
    "wait": WAIT,
    "children": CHILDREN,
    "classes": CLASSES,
    "sorting": SORTING,
    "storage": STORAGE,
}
"""The options, with their values."""


@dataclass(frozen=True)
class Strategy:
    """One way to traverse.

    Attributes:
        name: the strategy's name in ``Graph.bfs(strategy=...)``.
        family: the paper, or the kind of strategy.
        device: the device that runs the strategy: ``gpu``, ``cpu`` or ``any``.
        does: one sentence on how the strategy traverses.
        teaches: what a comparison with the strategy shows.
        source: paper and section.
        options: names of the options that the strategy takes, of ``CHOICES``.
        layout: the layout of the graph that the strategy needs: ``1d`` on one rank; ``2d``, or ``2d:1xp`` for a grid of
            one row, on any number of ranks.
    """

    name: str
    family: str
    device: str
    does: str
    teaches: str
    source: str
    options: tuple[str, ...] = ()
    layout: str = "1d"

    @property
    def grid(self) -> bool:
        """Whether the strategy is for ranks in a grid."""
        return self.layout != "1d"


_MERRILL: Final = "Merrill 2012"
_QUADRATIC: Final = "quadratic"
_QUEUES: Final = "Tödling 2019"
_KRAJECKI: Final = "Krajecki 2016"
_BASELINE: Final = "baseline"
_ALL: Final = ("gathering", "status", "culling", "tiles", "grid", "items")

_LIST: Final = (
    Strategy(
        "expand-contract",
        _MERRILL,
        "gpu",
        "One launch per level turns the vertex queue into the next vertex queue; neighbours never go through memory.",
        "the least memory traffic of the four",
        "Merrill 2012, section 5.1",
        (*_ALL, "neighbours"),
    ),
    Strategy(
        "contract-expand",
        _MERRILL,
        "gpu",
        "One launch per level turns the edge queue into the next edge queue; vertices never go through memory.",
        "how short a small level can be",
        "Merrill 2012, section 5.2",
        _ALL,
    ),
    Strategy(
        "two-phase",
        _MERRILL,
        "gpu",
        "One launch expands the vertex queue into an edge queue; a second contracts that into the next vertex queue.",
        "what separate phases gain on large levels, and what the second launch costs",
        "Merrill 2012, section 5.3",
        _ALL,
    ),
    Strategy(
        "hybrid",
        _MERRILL,
        "gpu",
        "Small edge queues take contract-expand, large ones two-phase.",
        "whether the better of both can be chosen at each level",
        "Merrill 2012, section 5.4",
        _ALL,
    ),
    Strategy(
        "radix-bins",
        _MERRILL,
        "gpu",
        "A rank expands its frontier into an edge queue and sorts that into a bin for each owner: counts, their prefix "
        "sum, and a copy, with culling on the way; after a barrier the owners read and contract their bins.",
        "what separate phases cost on several GPUs, beside one pass that claims neighbours and fills bins",
        "Merrill 2012, section 6",
        ("gathering", "culling", "grid", "items"),
        layout="2d:1xp",
    ),
    Strategy(
        "masks",
        _QUADRATIC,
        "gpu",
        "One thread per vertex walks the vertex's list if its mask is set; a second launch makes the next mask.",
        "what looking at every vertex in every level costs, most of all where there are many levels",
        "Harish and Narayanan 2007, in Merrill 2012, section 5.6",
    ),
    Strategy(
        "warp-centric",
        _QUADRATIC,
        "gpu",
        "A virtual warp takes a vertex of the graph for each of its lanes; all lanes walk each list of the frontier "
        "together.",
        "what sharing long lists gains if the frontier is found by looking at all vertices",
        "Hong et al. 2011, in Merrill 2012, section 5.6",
        ("width",),
    ),
    Strategy(
        "matrix-vector",
        _QUADRATIC,
        "gpu",
        "One warp per row multiplies the transposed adjacency matrix with the frontier: the whole one in every level.",
        "what looking at every edge in every level costs",
        "Deng, Wang and Mu 2009, in Merrill 2012, section 5.6",
    ),
    Strategy(
        "status-array",
        _QUEUES,
        "gpu",
        "One thread per vertex compares the vertex's label with the level, and walks the vertex's list alone.",
        "how fast the simplest kernel is, and how much of a warp it leaves idle",
        "Tödling 2019, the naive version",
        ("storage",),
    ),
    Strategy(
        "status-scan",
        _QUEUES,
        "gpu",
        "One launch queues all vertices whose label is the level; a second launch labels their neighbours.",
        "whether a queue without duplicates is worth a scan of all labels",
        "Liu and Huang 2015, in Tödling 2019",
        ("gathering",),
    ),
    Strategy(
        "atomic-queue",
        _QUEUES,
        "gpu",
        "Threads claim neighbours atomically and keep them in registers; a prefix sum and one atomic per block give "
        "them places in the queue, once for a tile of vertices.",
        "what exact claims cost, compared with culling that lets some duplicates pass",
        "Tödling 2019, the queue",
        ("gathering", "wait", "storage", "items", "threads"),
    ),
    Strategy(
        "degree-classes",
        _QUEUES,
        "gpu",
        "Each class of vertices has a queue and a launch: a thread, a warp, a block or the grid walks a list.",
        "whether work sorted by degree beforehand is worth several launches per level",
        "Tödling 2019, the classes",
        ("classes", "sorting", "storage", "items", "threads"),
    ),
    Strategy(
        "hierarchical",
        _QUEUES,
        "gpu",
        "One block runs many levels of a small frontier, a block for each multiprocessor those of a larger one; "
        "the largest levels take a launch each.",
        "what the launches of small levels cost, compared with a barrier of a block or of the grid",
        "Luo, Wong and Hwu 2010, in Tödling 2019",
        ("gathering",),
    ),
    Strategy(
        "device-loop",
        _QUEUES,
        "gpu",
        "A kernel launches the kernel of a level and, behind it, itself: the host waits once in many levels.",
        "what a launch by a kernel costs, compared with a launch by the host and with a barrier",
        "Tödling 2019, dynamic parallelism",
        ("gathering", "children", "storage"),
    ),
    Strategy(
        "child-kernels",
        _QUEUES,
        "gpu",
        "The thread that holds a long list launches a kernel for that list; the block gathers the other lists.",
        "whether launches made when needed beat classes made beforehand",
        "Tödling 2019, dynamic parallelism",
        ("gathering", "wait", "storage"),
    ),
    Strategy(
        "bitmap-queue",
        _KRAJECKI,
        "gpu",
        "A warp takes a word of the frontier's bitmap, and enlists for the lists of its bits one after another.",
        "what a queue of bits costs, which looks at a bit of every vertex in each level",
        "Krajecki 2016, algorithm 3",
    ),
    Strategy(
        "row-scan",
        _KRAJECKI,
        "any",
        "A rank takes its column's frontier as a bitmap, word by word. What the ranks of a row find passes along the "
        "row by an exclusive scan: the first finder keeps a vertex, and the union goes to the whole row.",
        "what it costs that a row's ranks agree on what each keeps, beside a fold to the owners",
        "Krajecki 2016, algorithms 2 and 3",
        layout="2d",
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
        "SciPy's breadth_first_order finds the order, and a loop along the order the distances.",
        "how fast SciPy is",
        "scipy.sparse.csgraph.breadth_first_order",
    ),
    Strategy(
        "resident",
        _BASELINE,
        "any",
        "The resident engine traverses, as it does without a strategy.",
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
        tiles: how blocks take tiles, and where their output goes, one of ``TILES``.
        neighbours: whether ``expand-contract`` culls its gathered neighbours too, one of ``NEIGHBOURS``.
        grid: threads of a launch at most, one of ``GRID``: as many as the device runs at once, or as Merrill's GPU did.
        width: lanes of a virtual warp, one of ``WIDTH``.
        items: entries or neighbours that a thread holds at a time, one of ``ITEMS``: the more, the more reads are under
            way, and the more duplicates pass.
        threads: threads of a block, one of ``THREADS``.
        wait: when the host waits, one of ``WAIT``: after a chain of levels, or after each level.
        children: lists that get a kernel of their own in ``device-loop``, one of ``CHILDREN``.
        classes: classes of vertices in ``degree-classes``, one of ``CLASSES``: with the grid's, or without.
        sorting: when vertices are sorted into classes, one of ``SORTING``: as they are found, or by a launch for all.
        storage: where a vertex's neighbours lie, one of ``STORAGE``: in one range, or on linked pages.
    """

    strategy: str
    gathering: str = "scan+warp+cta"
    status: str = "bitmask"
    culling: str = "warp+history"
    tiles: str = "share"
    neighbours: str = "pass"
    grid: str = "device"
    width: str = "32"
    items: str = "2"
    threads: str = "256"
    wait: str = "chain"
    children: str = "none"
    classes: str = "4"
    sorting: str = "exploring"
    storage: str = "csr"


def parse(text: str) -> Policy:
    """Return the policy of a text such as ``two-phase`` or ``two-phase:gathering=scan,culling=none``.

    Raises:
        InvalidOptionError: no strategy has the name, or the strategy has no such option, or the option no such value;
            or two options exclude each other; or a block of the strategy reserves places more than once for a tile, so
            that tiles have no order.
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
    if (policy.strategy, policy.tiles) == ("expand-contract", "order"):
        raise InvalidOptionError(
            "strategy expand-contract: tiles=order needs one reservation for a tile, and this strategy makes one for "
            "each batch of neighbours; choose tiles=share or tiles=steal, or strategy two-phase"
        )
    if (policy.tiles, policy.grid) == ("oversubscribe", "c2050"):
        raise InvalidOptionError(
            f"strategy {name}: tiles=oversubscribe launches a block for each tile, and grid=c2050 allows 84 blocks; "
            "choose tiles=steal, by which 84 blocks take the next tiles, or grid=device"
        )
    return policy
