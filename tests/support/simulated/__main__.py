"""Plays many games on all cores: ``python -m tests.support.simulated FIRST COUNT``."""

import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import dask.system

from tests.support.simulated import games

# Games that a process plays before it says so.
_EACH = 250


def _play(first: int, count: int) -> int:
    logging.disable(logging.CRITICAL)
    games.play_all(range(first, first + count))
    return count


def main() -> None:
    """See the module."""
    first, count = map(int, sys.argv[1:])
    began = time.monotonic()
    parts = [(start, min(_EACH, first + count - start)) for start in range(first, first + count, _EACH)]
    with ProcessPoolExecutor(dask.system.CPU_COUNT) as pool:
        played = sum(pool.map(_play, *zip(*parts, strict=True)))
    print(f"{played:,} games in {time.monotonic() - began:.0f} s, none failed")


if __name__ == "__main__":
    main()
