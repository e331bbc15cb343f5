"""The CUDA sources of the phases of a level, and of the resident kernel."""

from dataclasses import dataclass
from itertools import product
from typing import Final

from dbfs_workers.search.cuda import layout, words
from dbfs_workers.search.cuda.source import Source

_LAYOUT: Final = ((layout.HEADER_NAME, layout.HEADER),)
_PHASES: Final = (*_LAYOUT, (words.HEADER_NAME, words.HEADER))


@dataclass(frozen=True)
class Variant:
    """Compile-time options of ``resident.cu``.

    Attributes:
        gang: whether there are several ranks.
        predecessors: whether parents are recorded.
        threads: threads of a block.
        blocks_per_sm: blocks on a multiprocessor; with the threads it bounds the registers.
    """

    gang: bool
    predecessors: bool
    threads: int = 1024
    blocks_per_sm: int = 1

    @property
    def defines(self) -> tuple[str, ...]:
        """Compiler options."""
        return (
            f"-DDBFS_GANG={int(self.gang)}",
            f"-DDBFS_PREDECESSORS={int(self.predecessors)}",
            f"-DDBFS_THREADS={self.threads}",
            f"-DDBFS_BLOCKS_PER_SM={self.blocks_per_sm}",
        )

    @property
    def source(self) -> Source:
        """The source with these options."""
        return Source("search/cuda/kernels/resident/resident.cu", self.defines, _LAYOUT)


def with_types(path: str, *, gang: bool = True, first: bool = False) -> Source:
    """Return a source that includes ``common/types.cuh``; ``first`` as of ``Source``.

    That header needs values for the options of ``resident.cu``. Code of other sources depends on ``gang`` at most.
    """
    return Source(path, Variant(gang=gang, predecessors=True).defines, _PHASES, first=first)


FACTS: Final = Source("search/cuda/kernels/resident/facts.cu", generated=_LAYOUT, first=True)
SUMMARY: Final = with_types("search/cuda/kernels/resident/summary.cu", first=True)
PHASES: Final = with_types("search/cuda/kernels/phases/phases.cu")
LEVELS: Final = with_types("search/cuda/kernels/phases/levels.cu")
MESSAGES: Final = with_types("search/cuda/kernels/phases/messages.cu")

SOURCES: Final = (
    *(Variant(gang, predecessors).source for gang, predecessors in product((False, True), repeat=2)),
    *(FACTS, SUMMARY, PHASES, LEVELS, MESSAGES),
)
