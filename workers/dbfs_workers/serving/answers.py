"""An answer as it travels: a byte that tells how the request went, and the pickled value or error.

Handlers of messages answer so over Dask's comms (``rpc``), and ranks to rank 0's requests over lines (``turns``). What
only passes an answer on looks at the byte and unpickles nothing.
"""

import os
import pickle
import platform
from typing import Any

from dbfs_workers.base.errors import DbfsError, resource_error
from dbfs_workers.base.text import printable

_WELL, _FAILED, _MORE = b"\0", b"\1", b"\2"


def answer_well(value: object, *, more: bool = False) -> bytes:
    """Return the answer to a request that went well.

    Args:
        value: what the request was for.
        more: whether a burst goes on, and further answers follow.
    """
    return (_MORE if more else _WELL) + pickle.dumps(value, protocol=5)


def answer_error(error: BaseException, doing: str = "") -> bytes:
    """Return the answer to a request that failed. Only errors of dbfs keep their type; ``doing`` begins the others."""
    if not isinstance(error, DbfsError):
        process = f"the process {os.getpid()} on {platform.node()}"
        unknown = RuntimeError(printable(f"{doing}{': ' * bool(doing)}{type(error).__name__}: {error}"))
        error = resource_error(error, f"{process}, {doing}" if doing else process) or unknown
    return _FAILED + pickle.dumps(error)


def failed(answer: bytes) -> bool:
    """Return whether an answer is an error."""
    return answer.startswith(_FAILED)


def more_follow(answer: bytes) -> bool:
    """Return whether the burst goes on after a rank's answer."""
    return answer.startswith(_MORE)


def read_answer(answer: bytes) -> Any:
    """Return the value of an answer.

    Raises:
        Exception: the request failed with it.
    """
    value: Any = pickle.loads(memoryview(answer)[1:])
    if failed(answer):
        raise value
    return value


def error_of(answer: bytes) -> Exception | None:
    """Return the error of an answer; None if the request went well."""
    if failed(answer):
        try:
            read_answer(answer)
        except Exception as error:  # of any kind
            return error
    return None
