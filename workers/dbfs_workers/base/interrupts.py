"""Ctrl-C at moments when an interrupt would do harm: held back in this process, or blocked in those it starts."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from types import FrameType


@contextlib.contextmanager
def held(*, second_at_once: bool = False) -> Iterator[None]:
    """Hold Ctrl-C back until the end of a block.

    Args:
        second_at_once: whether a second Ctrl-C interrupts the block, for blocks that may take long.

    Raises:
        KeyboardInterrupt: there was a Ctrl-C meanwhile, and its handler is Python's own.
    """
    # Python runs signal handlers in the main thread only. None stands for a handler that Python can't set again.
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    came = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        if second_at_once:
            signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Let threads and processes that are started within a block ignore Ctrl-C in their terminal."""
    # Started first, because Python unblocks SIGINT in the thread that starts the tracker.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
