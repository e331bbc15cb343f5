"""The largest frontier whose level is led: chosen by the cores of the machine at first, then by the measured times.

A led level takes the time of one core. A level of all ranks takes the time of their cores together, and a crossing. A
crossing takes a microsecond where each rank has a core to itself, 200 on a virtual machine with 32 ranks, and a time
slice of other programs where ranks share cores with them. So no constant fits. After a traversal, rank 0 compares what
a vertex took in levels of about that size: in led levels and in levels of all ranks. The next traversal has twice the
size or half.
"""

from typing import Final

import numpy as np
from dask.system import CPU_COUNT
from numpy.typing import NDArray

LEAST: Final = 32
MOST: Final = 1 << 12
# With a core for each rank: vertices a rank in the first traversal, and the least. On 32 cores a crossing of 16 / 32
# ranks took 10 / 19 us and a led vertex of a road network 28 ns, so that led levels paid up to 360 / 680 vertices.
_FIRST_PER_RANK = 16
_LEAST_FIRST = 256
# Other programs need cores too: the client, the scheduler, the workers' own threads. On 32 cores the levels of the
# roads of Florida took 24 ms with all of 28 ranks, and 63 to 102 with all of 32. Led levels took 40.
_SPARE = 10
# Levels of each kind that a comparison takes at least.
_LEAST_LEVELS = 16


def first_size(p: int, cores: int = CPU_COUNT) -> int:
    """Return the most vertices of a led level before anything was measured.

    Args:
        p: ranks on this host.
        cores: cores that this process may use. Where ranks leave none of them to other programs, a rank that waits for
            a core holds up all others at each crossing.
    """
    return MOST if p > cores - cores // _SPARE else min(MOST, max(_LEAST_FIRST, _FIRST_PER_RANK * p))


def next_size(
    size: int,
    levels: NDArray[np.int64],
    frontier: NDArray[np.int64],
    seconds: NDArray[np.float64],
    led: NDArray[np.bool_],
) -> int:
    """Return the most vertices of a led level for the next traversal.

    Args:
        size: most vertices of a led level in the traversal that was measured.
        levels: by row of top-down levels, their number.
        frontier: by row, vertices over all ranks.
        seconds: by row, the time.
        led: by row, whether the levels were led.
    """
    near = (frontier > size // 4 * levels) & (frontier <= 4 * size * levels)
    kinds = [near & led, near & ~led]
    if min(levels[kind].sum() for kind in kinds) < _LEAST_LEVELS:
        return size
    led_cost, shared_cost = (seconds[kind].sum() / frontier[kind].sum() for kind in kinds)
    return min(MOST, 2 * size) if led_cost < shared_cost else max(LEAST, size // 2)
