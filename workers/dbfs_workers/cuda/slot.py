"""The host's side of one run of the resident kernel: what the kernel writes for the host, and the wait for its end."""

import time
from collections.abc import Callable
from typing import Any, Final

from dbfs_workers.cuda import layout
from dbfs_workers.cuda.records import CAPACITY, Mapped, Records
from dbfs_workers.cuda.run import KernelAbortedError, KernelHungError, KernelOutcome, Reason, Step
from dbfs_workers.errors import DeadlineExceededError

# Time for a stopped kernel to end.
LEAVE_SECONDS: Final = 5.0
# A sleep takes at least 70 us, which a short run would notice. For this long a wait only yields the GIL.
EAGER_SECONDS: Final = 1e-3
# While a kernel runs its records are taken this often, so that progress is up to date, or when this many wait.
LOOK_SECONDS: Final = 0.05
MANY_RECORDS: Final = CAPACITY // 16

# cudaErrorNotReady.
_NOT_READY: Final = 600


class Slot:
    """The host's side of one run. An engine has several, so that runs can be launched behind the one under way.

    Attributes:
        host: memory of the host that the kernel writes to.
        records: reader of the levels' records.
        done: the event behind the run on its stream.
    """

    def __init__(self, cupy: Any, *, alone: bool) -> None:
        self.host = Mapped()
        self.records = Records(self.host.header, self.host.ring, alone=alone)
        self.done = cupy.cuda.Event(disable_timing=True)
        self._query: Callable[[int], int] = cupy.cuda.runtime.eventQuery

    def clear(self) -> None:
        """Forget the previous run."""
        self.host.clear_header()
        self.records.clear()

    def wait(self, rank: int, give_up: float, abort: Callable[[], None]) -> None:
        """Wait until the run has ended.

        Args:
            rank: the rank, for messages.
            give_up: when to call ``abort``, in seconds of ``time.monotonic()``.
            abort: stops the kernels under way.

        Raises:
            KernelHungError: the kernel did not end, although it was stopped.
        """
        now = time.monotonic()
        look, patient = now + LOOK_SECONDS, now + EAGER_SECONDS
        while self._runs():
            now = time.monotonic()
            if now > look or self.records.pending > MANY_RECORDS:
                self.records.drain()
                look = now + LOOK_SECONDS
            if now > give_up + LEAVE_SECONDS:
                raise KernelHungError(
                    f"rank {rank}, level {self.host['level']}: the kernel did not end within"
                    f" {LEAVE_SECONDS:g} s after it was stopped"
                )
            if now > give_up:
                abort()
            time.sleep(20e-6 if now > patient else 0)

    def _runs(self) -> bool:
        """Return whether the run has yet to end. Raises CUDA's error if its kernel failed."""
        status = self._query(self.done.ptr)
        if status in (0, _NOT_READY):
            return status == _NOT_READY
        # CuPy's ``Event.done`` is False for an event behind a kernel that failed, so that a wait would not end.
        self.done.synchronize()
        return False

    def outcome(self, rank: int, timeout: float, give_up: float) -> KernelOutcome:
        """Return the outcome of the run, which has ended.

        Args:
            rank: the rank, for messages.
            timeout: seconds that the run was given.
            give_up: as of ``wait``.

        Raises:
            DeadlineExceededError: a wait in the kernel outlasted the timeout, or the host stopped the kernel then.
            KernelAbortedError: the kernel was stopped before.
        """
        host = self.host.values()
        status = host["status"]
        reason, level = Reason(status & 0xFF), status >> layout.STATUS_LEVEL
        step = status >> layout.STATUS_STEP & 0xFF
        if reason is not Reason.FINISHED:
            where = f"rank {rank}, level {level}, {Step(step).name.lower() if step else 'no'} step"
            # Either clock may see the deadline first: the kernel's, or this one, which then stopped the kernel.
            if reason is Reason.ABORTED and time.monotonic() <= give_up:
                raise KernelAbortedError(f"the run was aborted: {where}")
            raise DeadlineExceededError(f"the run took longer than {timeout} s: {where}")
        nanoseconds_a_cycle = (host["end_ns"] - host["gate_ns"]) / max(1, host["end_cycles"] - host["gate_cycles"])
        return KernelOutcome(
            levels=host["levels"],
            records=self.records.finish(),
            source_rows=host["source_rows"],
            source_edges=host["source_edges"],
            nanoseconds_a_cycle=nanoseconds_a_cycle,
            seconds=(host["end_ns"] - host["gate_ns"] + host["reset_ns"] - host["begin_ns"]) * 1e-9,
            reset_seconds=(host["reset_ns"] - host["begin_ns"]) * 1e-9,
        )
