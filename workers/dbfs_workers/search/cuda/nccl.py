"""NCCL for ``exchange.nccl``: a communicator over the GPUs of a gang, made from an id, without MPI.

The binding is nccl4py's ``nccl.bindings``, over the library that CUDA's packages install. docs/decisions/nccl.md says
why this binding, and why its classes are not used.

Communicators are blocking: of a non-blocking one every group starts a thread of NCCL, which takes 50 us instead of 17.
A group then waits for peers on the GPU only, where ``ncclCommAbort`` ends the wait, except the first: it connects the
peers. So the communicator and its first group are made in a thread, which is left behind if a peer does not come.
"""

import contextlib
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final

import numpy as np
from distributed.comm.addressing import get_address_host
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.search.cuda.communicator import Communicator, CommunicatorFailedError, Transfer

_BYTES: Final = 1
_PAUSE_SECONDS: Final = 5e-4


def require() -> None:
    """Raise ``ExchangeUnavailableError``, with how to install them, unless nccl4py and NCCL are installed."""
    try:
        version()
    except CommunicatorFailedError as error:
        raise ExchangeUnavailableError(str(error)) from None


def version() -> tuple[int, int, int]:
    """Return the version of the NCCL library that nccl4py loads, such as (2, 28, 9).

    Raises:
        CommunicatorFailedError: nccl4py is not installed, or finds no library.
    """
    number = int(_call(lambda: _binding().get_version()))
    return number // 10000, number // 100 % 100, number % 100


def stay_on_loopback(address: str) -> None:
    """Have NCCL listen on the loopback if the worker at ``address`` does; NCCL would choose another network.

    A ``NCCL_SOCKET_IFNAME`` of the user's stays. NCCL reads the variable once, before its first communicator.
    """
    if get_address_host(address) in ("127.0.0.1", "::1"):
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "=lo")


class Nccl:
    """See ``communicator.Library``. On the current GPU and its current stream."""

    def new_id(self) -> bytes:
        binding = _binding()
        return bytes(_call(binding.get_unique_id))

    def connect(
        self, p: int, rank: int, unique_id: bytes, transfers: Sequence[Transfer], watch: Callable[[], None]
    ) -> Communicator:
        import cupy

        binding, device = _binding(), cupy.cuda.Device()
        made: Future[NcclCommunicator] = Future()

        def make() -> None:
            device.use()
            try:
                name, config = binding.UniqueId.from_buffer(unique_id), binding.Config()
                communicator = NcclCommunicator(binding, binding.comm_init_rank_config(p, name, rank, config))
                with communicator.aborted_by_errors():
                    communicator.start(transfers)
                    # Fails if the waiting thread gave up.
                    made.set_result(communicator)
            except BaseException as error:
                with contextlib.suppress(InvalidStateError):
                    made.set_exception(error)

        threading.Thread(target=make, name="dbfs-nccl", daemon=True).start()
        try:
            while not made.done():
                watch()
                time.sleep(_PAUSE_SECONDS)
        except BaseException:
            if not made.cancel() and made.exception() is None:
                made.result().abort()
            raise
        communicator: NcclCommunicator = _call(made.result)
        with communicator.aborted_by_errors():
            while not communicator.done():
                watch()
                time.sleep(_PAUSE_SECONDS)
        return communicator

    def pinned(self, words: int) -> NDArray[np.int64]:
        import cupy

        array = np.frombuffer(cupy.cuda.alloc_pinned_memory(8 * words), np.int64, words)
        array[:] = 0
        return array

    def address(self, array: Any) -> int:
        interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
        return int(interface["data"][0])


class NcclCommunicator:
    """See ``communicator.Communicator``.

    Args:
        binding: the module ``nccl.bindings.nccl``.
        handle: the communicator, of class ``Comm``.
    """

    def __init__(self, binding: Any, handle: Any) -> None:
        import cupy

        self._binding = binding
        self._handle = handle
        self._stream = cupy.cuda.get_current_stream()
        self._event = cupy.cuda.Event(disable_timing=True)
        self._recorded = True

    def start(self, transfers: Sequence[Transfer]) -> None:
        binding, handle, stream = self._binding, self._handle, self._stream.ptr
        send, receive = binding.send, binding.recv
        try:
            binding.group_start()
            for peer, sent, sent_bytes, received, received_bytes in transfers:
                if sent_bytes:
                    send(sent, sent_bytes, _BYTES, peer, handle, stream)
                if received_bytes:
                    receive(received, received_bytes, _BYTES, peer, handle, stream)
            binding.group_end()
        except binding.NCCLError as error:
            raise CommunicatorFailedError(str(error)) from None
        self._recorded = False

    def done(self) -> bool:
        if not self._recorded:
            # At the first look, so that the event is behind what was queued after the transfers.
            self._event.record(self._stream)
            self._recorded = True
        return bool(self._event.done)

    def check(self) -> None:
        state = int(_call(lambda: self._binding.comm_get_async_error(self._handle)))
        if state:
            raise CommunicatorFailedError(str(self._binding.get_error_string(state)))

    @contextlib.contextmanager
    def aborted_by_errors(self) -> Iterator[None]:
        """Return a context whose errors end the communicator."""
        try:
            yield
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        # The communicator is gone in any case.
        with contextlib.suppress(CommunicatorFailedError):
            _call(lambda: self._binding.comm_abort(self._handle))


def _binding() -> Any:
    """Return nccl4py's module of NCCL's functions."""
    if importlib.util.find_spec("nccl") is None:
        raise CommunicatorFailedError(
            "nccl4py is not installed: pip install '.[nccl-cu13]', or '.[nccl-cu12]', in a clone of dbfs"
        )
    from nccl.bindings import nccl  # type: ignore[import-not-found,unused-ignore]

    return nccl


def _call(function: Callable[[], Any]) -> Any:
    """Call a function of NCCL."""
    try:
        return function()
    except Exception as error:  # NCCL's own errors, and those of a library that is missing or too old
        raise CommunicatorFailedError(f"{type(error).__name__}: {error}") from None
