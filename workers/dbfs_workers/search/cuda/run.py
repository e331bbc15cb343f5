"""Inputs and results of a run of the resident kernel: options, outcome, enums and errors."""

import enum
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from dbfs_workers.base.errors import DbfsError
from dbfs_workers.base.tokens import Token
from dbfs_workers.search.cuda.device_memory import ExportedArray

UNLIMITED: Final = 2**32 - 1
# Runs that are launched behind the one under way. A traversal may take 0.3 ms, and a host that sends an answer
# meanwhile, or waits for Python's lock, as long.
AHEAD: Final = 3


class KernelAbortedError(DbfsError, InterruptedError):
    """Raised on a rank whose kernel left because the host stopped it; the message names rank, level and step.

    The kernel does not have the reason. ``ResidentRunner`` has it, and raises the run's error instead.
    """


class KernelHungError(DbfsError, RuntimeError):
    """Raised if a stopped kernel does not end. Only a restart of the process frees its GPU."""


class Direction(enum.IntEnum):
    """Direction of the levels of a run; ``AUTO`` decides at every level."""

    AUTO = 0
    TOP_DOWN = 1
    BOTTOM_UP = 2


class Mode(enum.IntEnum):
    """Kind of a level (docs/design/resident-kernel.md)."""

    SPARSE = 0
    DENSE = 1
    BOTTOM_UP = 2
    LIGHT = 3
    LEADER = 4


class Step(enum.IntEnum):
    """Work of a rank between two barriers. Users read the names in errors.

    The order matters: from ``EXPAND_LIGHT`` on a step makes the frontier of the next level (``makes_next_frontier`` in
    ``direction.cuh``), the steps before it prepare the frontier of the current one.
    """

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
    """Reason why a kernel ended."""

    RUNNING = 0
    ABORTED = 1
    DEADLINE = 2
    FINISHED = 3


@dataclass(frozen=True)
class PeerInfo:
    """Facts about a rank that its peers need before the first run. Picklable.

    Attributes:
        handle: CUDA IPC handle of the rank's window; empty if there is one rank.
        token: the token that peers check before they open a handle of the rank.
        m_local: directed edges of the rank.
        connected: rows with an edge.
        max_degree: largest degree.
        bottom_up: whether the rank has the in-edges that bottom-up levels read.
        csr: row offsets and columns, for leader levels; None if the rank can't export them.
    """

    rank: int
    handle: bytes
    token: Token
    m_local: int
    connected: int
    max_degree: int
    bottom_up: bool
    csr: tuple[ExportedArray, ExportedArray] | None


@dataclass(frozen=True)
class OfferedMessages:
    """Where the peers find a rank's messages. Picklable.

    Attributes:
        handle: CUDA IPC handle of the messages.
        token: the token that peers check before they open the handle.
    """

    rank: int
    handle: bytes
    token: Token


@dataclass(frozen=True)
class KernelOptions:
    """Options of one traversal.

    Attributes:
        sources: vertex ids at distance 0.
        targets: vertex ids; the run stops after the level that labels the last of them. Empty: no such stop.
        max_depth: the largest distance to label.
        direction: direction of the levels.
        timeout: seconds after which every wait in the kernel ends.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...] = ()
    max_depth: int = UNLIMITED
    direction: Direction = Direction.AUTO
    timeout: float = 60.0


@dataclass(frozen=True)
class KernelOutcome:
    """Outcome of a finished run on one rank.

    Attributes:
        records: ``layout.RECORD`` of each level, as the kernel wrote them.
        source_rows: sources of this rank.
        source_edges: their out-edges.
        nanoseconds_a_cycle: converts the records' ``cycles``.
        seconds: device time from the first instruction to the last, without the wait for peers to start.
        reset_seconds: the part of ``seconds`` that cleared the state of the previous run.
    """

    levels: int
    records: NDArray[Any]
    source_rows: int
    source_edges: int
    nanoseconds_a_cycle: float
    seconds: float
    reset_seconds: float
