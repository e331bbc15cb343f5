"""What a run of the resident engine is told, and what it answers: options, outcome, statistics, errors."""

import enum
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from dbfs_workers.cuda.device_memory import ExportedArray
from dbfs_workers.errors import DbfsError

# Measured: docs/decisions/direction.md.
ALPHA: Final = 40.0
BETA: Final = 20000.0
UNLIMITED: Final = 2**32 - 1


class KernelAbortedError(DbfsError, InterruptedError):
    """A run was cancelled while it ran; the message names the rank, the level and the phase."""


class KernelHungError(DbfsError, RuntimeError):
    """A kernel did not leave when told to; the process has to be restarted to free its GPU."""


class Direction(enum.IntEnum):
    """Which way levels go; ``AUTO`` decides at every level."""

    AUTO = 0
    TOP_DOWN = 1
    BOTTOM_UP = 2


class Mode(enum.IntEnum):
    """What a level was."""

    SPARSE = 0
    DENSE = 1
    BOTTOM_UP = 2
    LIGHT = 3
    LEADER = 4


class Step(enum.IntEnum):
    """Where a kernel stood when it gave up, as in ``types.cuh``."""

    RESET = 1
    START = 2
    SETTLE = 3
    COMPACT = 4
    CLEAR_BITS = 5
    SET_BITS = 6
    SHARE_BITS = 7
    HAND_OVER = 8
    TAKE_OVER = 9
    EXPAND_LIGHT = 10
    EXPAND_LEADER = 11
    EXPAND_SPARSE = 12
    CONTRACT = 13
    EXPAND_DENSE = 14
    MERGE = 15
    SCAN = 16
    STOP = 17


class Reason(enum.IntEnum):
    """Why a kernel ended, as in ``types.cuh``."""

    RUNNING = 0
    ABORTED = 1
    DEADLINE = 2
    FINISHED = 3


@dataclass(frozen=True)
class PeerInfo:
    """What a rank tells its peers before the first run. Picklable.

    Attributes:
        handle: CUDA IPC handle of its window; empty where there is one rank.
        m_local: directed edges of that rank.
        connected: rows with an edge.
        max_degree: largest degree.
        bottom_up: whether bottom-up levels are possible there.
        csr: its row offsets and its columns, for the rank that leads; None where nobody can.
    """

    rank: int
    handle: bytes
    m_local: int
    connected: int
    max_degree: int
    bottom_up: bool
    csr: tuple[ExportedArray, ExportedArray] | None


@dataclass(frozen=True)
class KernelOptions:
    """One traversal.

    Attributes:
        sources: vertex ids at distance 0.
        targets: stop after the level that labels the last of them; none: reach everything.
        max_depth: the largest distance to label.
        direction: which way levels go.
        alpha: bottom-up when frontier edges * alpha > unexplored edges.
        beta: top-down again when frontier vertices * beta < connected vertices.
        sparse_edges: most frontier edges of a sparse level, up to the capacity; None for the measured default.
        timeout: seconds after which every wait in the kernel ends.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...] = ()
    max_depth: int = UNLIMITED
    direction: Direction = Direction.AUTO
    alpha: float = ALPHA
    beta: float = BETA
    sparse_edges: int | None = None
    timeout: float = 60.0


@dataclass(frozen=True)
class KernelOutcome:
    """A finished run on one rank.

    Attributes:
        levels: levels run.
        records: ``layout.RECORD`` of each, as the kernel left them.
        nanoseconds_a_cycle: of the records' ``cycles``.
        seconds: device time, from the first instruction to the last, waiting for peers to start not counted.
        reset_seconds: the part of it that cleared the state of the run before.
    """

    levels: int
    records: NDArray[Any]
    nanoseconds_a_cycle: float
    seconds: float
    reset_seconds: float
