"""Preload of local clusters' workers: Dask's log omits what their client reports, or has caused.

Dask logs a failed task in six lines on every worker that it fails on. The client raises the same typed error. Dask also
logs each task that ends because its worker closes, and each heartbeat that the scheduler's end cuts off. asyncio logs
a wait of Dask that timed out just as its event loop ended. The client's process filters those waits as well.
"""

import logging

from dbfs_workers.base import errors

_TYPED = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
# The place of the exception's repr among the arguments of Dask's message.
_EXCEPTION = 3


def wanted(record: logging.LogRecord) -> bool:
    """Return whether a record of the worker's log says what no client reports."""
    if str(record.msg).startswith("Failed to communicate with scheduler during heartbeat"):
        return False
    if not str(record.msg).startswith("Compute Failed") or not isinstance(record.args, tuple):
        return True
    return len(record.args) <= _EXCEPTION or str(record.args[_EXCEPTION]).partition("(")[0] not in _TYPED


def _not_closing(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Async instruction for")


def not_a_lost_wait(record: logging.LogRecord) -> bool:
    """Return whether a record of asyncio's log is about anything but a timeout that nobody waited for any more.

    Dask sends messages from a loop that waits a few milliseconds for the next one. Tornado's error has this text.
    """
    error = record.exc_info[1] if record.exc_info else None
    lost = str(record.msg).startswith("Future exception was never retrieved")
    return not (lost and isinstance(error, TimeoutError) and str(error) == "Timeout")


logging.getLogger("asyncio").addFilter(not_a_lost_wait)
logging.getLogger("distributed.worker").addFilter(wanted)
logging.getLogger("distributed.worker.state_machine").addFilter(_not_closing)
