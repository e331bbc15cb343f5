"""How handlers answer, on workers and on the scheduler.

Handlers answer ``{"ok": bytes}`` or ``{"error": bytes}``, pickled: an exception that left a handler would be logged
here and lose its type on the way through the scheduler.
"""

import functools
import logging
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

from dbfs_workers.errors import DbfsError

logger = logging.getLogger(__name__)

NAME = "dbfs"
"""Name of the plugins, on workers and on the scheduler."""

Answer = dict[str, bytes]


def answering(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Answer]]:
    """Make a handler answer as this module's docstring says."""

    @functools.wraps(handler)
    async def wrapper(*arguments: Any, **keywords: Any) -> Answer:
        try:
            return {"ok": pickle.dumps(await handler(*arguments, **keywords))}
        except DbfsError as error:
            return {"error": pickle.dumps(error)}
        except Exception as error:
            logger.exception("dbfs: %s failed", handler.__name__)
            return {"error": pickle.dumps(RuntimeError(f"{handler.__name__}: {type(error).__name__}: {error}"))}

    return wrapper


def unpack(answer: Answer) -> Any:
    """What a handler returned; raises what it raised."""
    if "error" in answer:
        raise pickle.loads(answer["error"])
    return pickle.loads(answer["ok"])
