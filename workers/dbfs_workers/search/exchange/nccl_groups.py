"""Groups of transfers by NCCL among the ranks of a gang, and every way in which one can end early.

A group that waits for a peer occupies the GPU, and only the end of the communicator stops it. So a run that fails ends
this rank's communicator, and ``connect`` makes a new one before the next run. The end of a run, with its cause, travels
by ``transport.AbortMessages``: NCCL has no such messages.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from dbfs_workers.base.errors import DeadlineExceededError, ExchangeUnavailableError, RunAbortedError
from dbfs_workers.search.cuda.communicator import Communicator, CommunicatorFailedError, Library, Transfer
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.exchange.transport import AbortMessages, Send

CONNECT_SECONDS: Final = 20.0
"""Seconds that forming a communicator may take. NCCL looks for network adapters first."""

CAUSE_SECONDS: Final = 1.0
"""Seconds that a rank waits for the cause of an error of NCCL: a connection breaks before its worker counts as lost."""

# A wait polls without a pause for so long, since a pause takes longer than a level; then it pauses.
_SPIN_SECONDS: Final = 2e-3
_PAUSE_SECONDS: Final = 1e-4
# A wait looks for failures of NCCL itself once in this many polls.
_POLLS_A_LOOK: Final = 256


class NcclGroups(AbortMessages):
    """One rank's end of a communicator: the ``offer`` and ``connect`` of a ``GangExchange``.

    Args:
        p: number of ranks.
        rank: this rank.
        send: sends the aborts of runs.
        library: NCCL.
    """

    def __init__(self, p: int, rank: int, send: Send, library: Library) -> None:
        super().__init__(p, rank, send)
        self._library = library
        self._communicator: Communicator | None = None
        self._ending: threading.Thread | None = None
        # Words that the first group of a communicator transfers.
        self._connecting: Sequence[Transfer] = ()
        self._run_id = ""
        self._deadline = 0.0

    def offer(self) -> bytes:
        """See ``GangExchange.offer``. Ends the communicator of the run before; rank 0 names the next one."""
        self.disconnect()
        try:
            return b"" if self.rank else self._library.new_id()
        except CommunicatorFailedError as error:
            raise ExchangeUnavailableError(f"rank {self.rank}: {error}") from None

    def connect(self, offers: Sequence[bytes]) -> None:
        """See ``GangExchange.connect``."""
        end = time.monotonic() + CONNECT_SECONDS

        def watch() -> None:
            if time.monotonic() > end:
                raise ExchangeUnavailableError(f"rank {self.rank}: no communicator after {CONNECT_SECONDS:g} s")

        try:
            self._communicator = self._library.connect(self.p, self.rank, offers[0], self._connecting, watch)
        except CommunicatorFailedError as error:
            raise ExchangeUnavailableError(f"rank {self.rank} is not connected by NCCL: {error}") from None

    def disconnect(self) -> None:
        """End the communicator, if there is one, and wait until it has ended. The run before is over on this rank."""
        self._end_communicator()
        if self._ending is not None:
            self._ending.join(CONNECT_SECONDS)
            self._ending = None

    def _start(self, transfers: Sequence[Transfer], level: int, phase: str) -> None:
        """Queue a group of transfers."""
        if self._communicator is None:
            raise RunAbortedError(f"{self._where(level, phase)}: its communicator has ended with an earlier run")
        try:
            self._communicator.start(transfers)
        except CommunicatorFailedError as error:
            raise self._failed(error, level, phase) from None

    def _wait(self, level: int, phase: str, passed: Callable[[], int] = lambda: 0) -> None:
        """Wait for all that is queued. Every error ends the communicator.

        Args:
            level: the first level that is queued, for errors.
            phase: the phase, for errors.
            passed: returns how many levels have ended since.
        """
        communicator = self._communicator
        assert communicator is not None

        def where() -> str:
            return self._where(level + passed(), phase)

        polls, spinning = 0, time.monotonic() + _SPIN_SECONDS
        try:
            while True:
                done, now = communicator.done(), time.monotonic()
                # Looked for at every crossing: a run whose ranks never wait for each other must end as well.
                if self._abort is not None:
                    self._raise_if_aborted(where())
                if now > self._deadline:
                    self.abort(self._number, Cause.DEADLINE, f"level {level + passed()}, {phase}, at the barrier")
                    raise DeadlineExceededError(f"{where()}: the deadline passed at the barrier")
                if done:
                    return
                polls += 1
                if polls % _POLLS_A_LOOK == 0:
                    communicator.check()
                if now > spinning:
                    time.sleep(_PAUSE_SECONDS)
        except CommunicatorFailedError as error:
            raise self._failed(error, level + passed(), phase) from None
        except BaseException:
            self._end_communicator()
            raise

    def _end_communicator(self) -> None:
        """Begin to end the communicator. NCCL takes half a second; the run's error need not wait for that."""
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            self._ending = threading.Thread(target=communicator.abort, name="dbfs-nccl-end", daemon=True)
            self._ending.start()

    def _failed(self, error: CommunicatorFailedError, level: int, phase: str) -> RunAbortedError:
        """End the run on all ranks because NCCL failed, unless the run is ended with the cause of that."""
        self._end_communicator()
        where = self._where(level, phase)
        with self._changed:
            self._changed.wait_for(lambda: self._is_aborted, CAUSE_SECONDS)
        self._raise_if_aborted(where)
        self.abort(self._number, Cause.FAILED, f"NCCL failed: {error}")
        return RunAbortedError(f"{where}: NCCL failed: {error}")

    @property
    def _is_aborted(self) -> bool:
        return self._abort is not None and self._abort.number == self._number

    def _where(self, level: int, phase: str) -> str:
        return f"run {self._run_id}, rank {self.rank}, level {level}, {phase}"
