"""The process that loads a catalog's graphs when a scheduler has started: ``dbfs load --catalog``, a client of its own.

A client in the scheduler's own process would take turns with the scheduler's event loop at Python's lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final

import dask
from dask.config import serialize

from dbfs_workers.base.text import printable

logger = logging.getLogger(__name__)

_LONGEST_LINE: Final = 1 << 20


async def load_catalog(path: str, address: str) -> None:
    """Load the graphs of a catalog into the scheduler at ``address``; the lines of the process go into this log.

    What it writes to stderr are warnings: what can't be loaded, and why. Cancelling this ends the process.
    """
    command = (sys.executable, "-m", "dbfs", "load", "--catalog", path, "--scheduler", address)
    # Dask's processes read this variable, and so have the configuration of the process that starts them.
    settings = os.environ | {"DASK_INTERNAL_INHERIT_CONFIG": serialize(dask.config.global_config)}
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=none, stdout=pipe, stderr=pipe, env=settings, limit=_LONGEST_LINE
        )
    except OSError as error:
        logger.warning("catalog %s: not loaded, since no process could be started: %s", path, error)
        return
    assert process.stdout is not None and process.stderr is not None
    try:
        await asyncio.gather(_log(path, process.stdout, logging.INFO), _log(path, process.stderr, logging.WARNING))
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _log(path: str, lines: asyncio.StreamReader, level: int) -> None:
    async for line in lines:
        logger.log(level, "catalog %s: %s", path, printable(line.decode(errors="replace").rstrip()))
