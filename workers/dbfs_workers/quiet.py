"""Preload of local clusters' workers: Dask's log omits what their client reports, or has caused.

Dask logs a failed task in six lines on every worker that it fails on. The client raises the same typed error. Dask also
logs each task that ends because its worker closes, and each heartbeat that the scheduler's end cuts off.
"""

import logging

from dbfs_workers import errors

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


logging.getLogger("distributed.worker").addFilter(wanted)
logging.getLogger("distributed.worker.state_machine").addFilter(_not_closing)
