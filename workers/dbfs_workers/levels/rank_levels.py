"""What runs the levels of a rank, made once for all traversals that are made together."""

from collections.abc import Callable
from dataclasses import dataclass

from dbfs_workers.backends.protocol import Backend
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.levels.led_levels import LedLevels
from dbfs_workers.levels.level_table import LevelTable
from dbfs_workers.levels.queued_levels import QueuedLevels
from dbfs_workers.levels.top_down_levels import TopDownLevels
from dbfs_workers.storage.scratch import Scratch


@dataclass(frozen=True)
class RankLevels:
    """What runs the levels of traversals, one traversal after another.

    Attributes:
        backend: runs the phases.
        scratch: this rank's working memory.
        exchange: this rank's end of the gang's exchange.
        kernel: runs consecutive top-down levels, by one kernel or queued on a GPU; None if there is neither.
        led: this rank's part in led levels; None if there are none.
        table: the levels of the traversals.
    """

    backend: Backend
    scratch: Scratch
    exchange: Exchange
    kernel: TopDownLevels | QueuedLevels | None
    led: LedLevels | None
    table: LevelTable

    @classmethod
    def of(cls, backend: Backend, scratch: Scratch, exchange: Exchange, free_bytes: Callable[[], int]) -> "RankLevels":
        """Return what runs the levels of a rank.

        Args:
            backend, scratch, exchange: see the attributes.
            free_bytes: returns the bytes of memory that this process may still take.
        """
        return cls(
            backend=backend,
            scratch=scratch,
            exchange=exchange,
            kernel=TopDownLevels.where_possible(backend, scratch, exchange)
            or QueuedLevels.where_possible(scratch, exchange),
            led=LedLevels.where_possible(backend, scratch, exchange, free_bytes),
            table=LevelTable(),
        )
