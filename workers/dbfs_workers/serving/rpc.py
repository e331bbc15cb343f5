"""Typed messages between clients, the scheduler and workers: how a message is sent, handled and answered.

A message is a frozen dataclass that derives from ``Message[Answer]``. ``send`` and ``unpack`` send it and read the
answer. A service marks the method that handles a message with ``@TheMessage.handler``. So mypy checks the fields and
the use of the answer at the call, and the types of the message and of the answer at the handler.

Messages travel over Dask's comms, pickled, under the operation that their class names. The answer is that of
``answers``, an error included: Dask would log an exception that leaves a handler, and lose its type. A large array as
an answer travels in a frame of its own, which neither end copies. Whoever can send a message can run code, as with
Dask's own messages (SECURITY.md).
"""

import asyncio
import functools
import inspect
import logging
import pickle
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
from distributed.protocol import to_serialize

from dbfs_workers.base.errors import DbfsError, VersionMismatchError
from dbfs_workers.base.received import check
from dbfs_workers.serving.answers import answer_error, answer_well, read_answer

logger = logging.getLogger(__name__)

LATE_SECONDS: Final = 0.2
"""Seconds after a run's deadline in which a rank's own error may still arrive at rank 0, or at the scheduler."""

NAME = "dbfs"
"""Name of the plugins, on workers and on the scheduler."""

_MESSAGE = "__dbfs_message__"

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")

Envelope = bytes | list[Any]
"""An answer as it travels: see ``answers``. A large array is alone in a list, which Dask looks into."""

_LEAST_FRAME_BYTES = 64 * 1024
"""Bytes from which an array gets a frame of its own; pickling copies it, which takes less time below."""


class Message(Generic[A_co]):
    """Base of all messages; ``A_co`` is the type of the answer.

    Attributes:
        operation: Dask's name of the handler, derived from the class: ``dbfs_begin_turn`` for ``BeginTurn``.
    """

    operation: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.operation = "dbfs_" + re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def handler(
        cls, method: Callable[[S, Self], Coroutine[Any, Any, A_co]]
    ) -> Callable[[S, Self], Coroutine[Any, Any, A_co]]:
        """Mark a service's method as the handler of this message."""
        setattr(method, _MESSAGE, cls)
        return method


@dataclass(frozen=True)
class PickledValue(Generic[T]):
    """A value inside a message that the scheduler passes on without unpickling it.

    Attributes:
        data: the pickled value.
    """

    data: bytes

    @classmethod
    def of(cls, value: T) -> "PickledValue[T]":
        """Pickle a value."""
        return cls(pickle.dumps(value))

    def value(self) -> T:
        """Return the value, unpickled anew by each call."""
        value: T = pickle.loads(self.data)
        return value


async def send(server: Any, message: Message[Any], seconds: float) -> Envelope | None:
    """Send a message to a scheduler or worker, given as Dask's rpc object, and return the answer for ``unpack``.

    Every message between processes passes here, except those over lines, so none is waited for without an end.

    Raises:
        TimeoutError: no answer came within ``seconds``. The server may still carry the message out.
        OSError: the connection broke. Many errors of handlers are also ``OSError``; those are in the answer.
    """
    async with asyncio.timeout(seconds):
        answer: Envelope | None = await getattr(server, message.operation)(message=pickle.dumps(message))
        return answer


def unpack(address: str, message: Message[A], answer: Envelope | None) -> A:
    """Return what the handler of a message returned.

    Raises:
        VersionMismatchError: the server at ``address`` has no handler for the message.
        Exception: the handler raised it.
    """
    if answer is None:
        raise VersionMismatchError(
            f"{address} has no handler {message.operation}: its dbfs is missing or of another version; "
            "install the client's version there and restart it"
        )
    unpacked: A = read_answer(answer) if isinstance(answer, bytes) else answer[0]
    return unpacked


def handlers(service: object) -> dict[str, Callable[[bytes], Awaitable[Envelope]]]:
    """Return a service's handlers by operation, as Dask's servers take them."""
    marked = {name: getattr(method, _MESSAGE, None) for name, method in inspect.getmembers(type(service))}
    return {
        message.operation: _answering(message, getattr(service, name))
        for name, message in marked.items()
        if message is not None
    }


def _answering(
    kind: type[Message[Any]], method: Callable[[Any], Awaitable[Any]]
) -> Callable[[bytes], Awaitable[Envelope]]:
    """Wrap the handler of the messages of a class so that it takes a pickled message and returns an envelope."""

    @functools.wraps(method)
    async def handler(message: bytes) -> Envelope:
        try:
            value = await method(_received(kind, message))
            framed = isinstance(value, np.ndarray) and value.nbytes >= _LEAST_FRAME_BYTES
            return [to_serialize(value)] if framed else answer_well(value)
        except Exception as error:
            if not isinstance(error, DbfsError):
                logger.exception("dbfs: the handler %s failed", method.__name__)
            return answer_error(error, method.__name__)

    return handler


def _received(kind: type[Message[Any]], pickled: bytes) -> Message[Any]:
    """Return a message that arrived, unpickled and checked. Errors as for ``received.check``."""
    try:
        message: Message[Any] = pickle.loads(pickled)
    except Exception as error:
        raise VersionMismatchError(
            f"{kind.operation}: the message can't be unpickled ({type(error).__name__}: {error}); "
            "is the sender's dbfs of another version?"
        ) from error
    check(message, kind, kind.operation)
    return message


def no_way(error: OSError) -> bool:
    """Return whether no connection came about; else a process took it that says nothing now, so that it is late."""
    return "during handshake" not in str(error)
