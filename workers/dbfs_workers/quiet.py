"""Preload of local clusters' workers: Dask's log omits what their client reports, or has caused.

Dask logs a failed task in six lines on every worker that it fails on. The client raises the same typed error. Dask also
logs each task that ends because its worker closes.
"""

import logging

from dbfs_workers import errors

_TYPED = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
# The place of the exception's repr among the arguments of Dask's message.
_EXCEPTION = 3


def _not_typed(record: logging.LogRecord) -> bool:
    if not str(record.msg).startswith("Compute Failed") or not isinstance(record.args, tuple):
        return True
    return len(record.args) <= _EXCEPTION or str(record.args[_EXCEPTION]).partition("(")[0] not in _TYPED


def _not_closing(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Async instruction for")


logging.getLogger("distributed.worker").addFilter(_not_typed)
logging.getLogger("distributed.worker.state_machine").addFilter(_not_closing)
