"""The scheduler's calls to workers."""

import asyncio
import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import distributed
from distributed.comm.addressing import get_address_host_port

from dbfs.base.records import WorkerState
from dbfs.errors import ExchangeUnavailableError, LateError, UnreachableError
from dbfs.service.late_workers import WorkerWatch
from dbfs_workers.serving import rpc
from dbfs_workers.serving.messages import DisconnectExchange, LeaveGang, ReachPeer, WorkerMessage
from dbfs_workers.serving.rpc import A

GRACE_SECONDS = 2.0
"""Seconds that the scheduler waits for a worker that should answer at once: it may be stopped, or out of reach."""

# Seconds between two looks whether a worker that has not answered is still in the cluster.
_LOOK_SECONDS = 0.2


class WorkerCall(Protocol):
    """A function that sends a message to the worker at ``address`` and returns the answer. It has its own deadline."""

    async def __call__(self, address: str, message: WorkerMessage[A]) -> A:
        """See ``WorkerCalls.call``."""


class WorkerCalls:
    """Sends messages to workers from the scheduler."""

    def __init__(self, scheduler: distributed.Scheduler) -> None:
        self._scheduler = scheduler
        # By address, the installation of the plugin on a worker that has not answered yet.
        self._installing: dict[str, asyncio.Future[Any]] = {}
        # Workers that have answered: the scheduler can connect to them.
        self._reached: set[str] = set()

    async def install(self, plugin: bytes, watch: WorkerWatch) -> None:
        """Install the workers' half on all workers, later ones included; wait for those that are not late.

        ``Scheduler.register_worker_plugin`` waits for all of them without an end.
        """
        self._scheduler.worker_plugins[rpc.NAME] = plugin
        for address in self._scheduler.workers:
            adding = {"op": "plugin-add", "plugin": plugin, "name": rpc.NAME}
            installing = asyncio.ensure_future(
                self._scheduler.broadcast(msg=adding, workers=[address], on_error="ignore")
            )
            installing.add_done_callback(functools.partial(self._installed, address))
            self._installing[address] = installing
        while waited := [
            self._installing[worker.address]
            for worker in watch.statuses(self._installing)
            if worker.state is not WorkerState.LATE
        ]:
            await asyncio.wait(waited, timeout=_LOOK_SECONDS)

    def _installed(self, address: str, _: asyncio.Future[Any]) -> None:
        del self._installing[address]

    async def call(self, address: str, message: WorkerMessage[A], seconds: float) -> A:
        """Send a message to a worker and return the answer.

        Raises:
            LateError: the worker did not answer within ``seconds``.
            UnreachableError: the connection broke, or the worker left the cluster.
            ExchangeUnavailableError: the scheduler could never connect to the address that the worker announces.
            Exception: the worker's handler raised it.
        """
        sending = asyncio.ensure_future(self._send(address, message, seconds))
        try:
            # Dask tries for half a minute to connect to a worker that has left.
            while not (await asyncio.wait({sending}, timeout=_LOOK_SECONDS))[0]:
                if address not in self._scheduler.workers:
                    raise UnreachableError(f"lost the worker {address}: the worker left; load the graph again")
            answer = sending.result()
        except TimeoutError as error:
            raise LateError(f"no answer from the worker {address} within {seconds:.3g} s") from error
        except OSError as error:
            if address not in self._reached and address in self._scheduler.workers and rpc.no_way(error):
                raise ExchangeUnavailableError(_unreachable("the scheduler", "the worker", address, error)) from error
            raise UnreachableError(f"lost the worker {address}: the connection broke; load the graph again") from error
        finally:
            sending.cancel()
        self._reached.add(address)
        return rpc.unpack(address, message, answer)

    async def _send(self, address: str, message: WorkerMessage[Any], seconds: float) -> rpc.Envelope | None:
        """Send a message to a worker, once the worker has the plugin; errors as of ``rpc.send``."""
        installing = self._installing.get(address)
        if installing is not None:
            began = time.monotonic()
            await asyncio.wait([installing], timeout=seconds)
            seconds = max(1e-3, seconds - (time.monotonic() - began))
        return await rpc.send(self._scheduler.rpc(address), message, seconds)

    def until(self, end: float) -> WorkerCall:
        """Return the calls that wait for answers until ``end``, in seconds of ``time.monotonic()``.

        The messages that clear up have ``GRACE_SECONDS`` after that.
        """

        async def call(address: str, message: WorkerMessage[A]) -> A:
            least = GRACE_SECONDS if isinstance(message, LeaveGang | DisconnectExchange) else 1e-3
            return await self.call(address, message, max(least, end - time.monotonic()))

        return call

    async def call_all(self, addresses: Iterable[str], message: WorkerMessage[Any]) -> None:
        """Send a message to the workers that are still in the cluster.

        Errors are ignored. A worker that does not answer within ``GRACE_SECONDS`` seconds is left alone.
        """
        present = [address for address in addresses if address in self._scheduler.workers]
        calls = [self.call(address, message, GRACE_SECONDS) for address in present]
        await asyncio.gather(*calls, return_exceptions=True)


async def all_answers(
    call: WorkerCall, addresses: Sequence[str], messages: Iterable[WorkerMessage[A]], where: str = ""
) -> list[A]:
    """Send each rank its message; return all answers, or raise an error once all calls are over.

    So after an error no rank is still entering a gang while the others leave it. The error of a late or a lost rank
    begins with ``where``; that of a late one is raised if nothing else went wrong.
    """
    calls = [call(address, message) for address, message in zip(addresses, messages, strict=False)]
    answers: list[A] = []
    late: LateError | None = None
    for rank, answer in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
        if isinstance(answer, UnreachableError):
            raise UnreachableError(f"{where}lost rank {rank} ({addresses[rank]}); load the graph again") from answer
        if isinstance(answer, LateError):
            late = late or LateError(f"{where}no answer from rank {rank}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            answers.append(answer)
    if late is not None:
        raise late
    return answers


async def require_reach(call: WorkerCall, addresses: Sequence[str]) -> None:
    """Check that the scheduler can connect to each rank, and each rank to the next one, before a build needs it.

    A build would try for minutes, without a word. All pairs would be too many: a closed port or an address that leads
    nowhere shows itself to one neighbour too.

    Raises:
        ExchangeUnavailableError: a connection is not possible; the error names the host and the port.
    """
    following = [*addresses[1:], addresses[0]]
    for rank, why in enumerate(await all_answers(call, addresses, map(ReachPeer, following))):
        if why:
            peer = (rank + 1) % len(addresses)
            raise ExchangeUnavailableError(
                _unreachable(f"rank {rank} ({addresses[rank]})", f"rank {peer}", following[rank], why)
            )


def _unreachable(who: str, whom: str, address: str, why: object) -> str:
    host, port = get_address_host_port(address)
    if host.startswith("127.") or host in ("::1", "localhost"):
        advice = "this address is of a machine's own loopback: start the worker with --interface or --host"
    else:
        advice = "open the port, or start the worker with --interface or --host of the network that all machines share"
    return f"{who} can't connect to {whom} at {host}, port {port}: {why}; {advice}"
