"""Translation of CuPy's errors into dbfs's, which every client can unpickle, with or without CuPy."""

from collections.abc import Iterator
from contextlib import contextmanager

from dbfs_workers.base.errors import DeviceFailedError, GraphTooLargeError
from dbfs_workers.search.cuda import device_memory


@contextmanager
def typed_errors(where: str) -> Iterator[None]:
    """Raise CuPy's errors inside the block as dbfs's, with messages that begin with ``where``.

    Raises:
        GraphTooLargeError: the GPU has too little memory left; the message has the bytes free.
        DeviceFailedError: CUDA reports any other error; the message has CUDA's.
    """
    import cupy

    # ``from None``: Dask pickles an error's cause with it, and a client without CuPy could then unpickle neither.
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise GraphTooLargeError(f"{where}: {error}; {_free()} bytes are free on its GPU") from None
    # Errors of the driver come from loading and launching kernels.
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        if "MemoryAllocation" in str(error) or "OUT_OF_MEMORY" in str(error):
            raise GraphTooLargeError(f"{where}: its GPU has no memory left, {_free()} bytes are free") from None
        raise DeviceFailedError(f"{where}: its GPU failed: {error}") from None


@contextmanager
def on_gpu(where: str) -> Iterator[None]:
    """Run a task's work on the GPU: raise typed errors that begin with ``where``, and wait for the GPU at the end."""
    import cupy

    with typed_errors(where):
        try:
            yield
            cupy.cuda.get_current_stream().synchronize()
        finally:
            # Free blocks that CuPy's pool holds are missing for allocations outside it, and for ranks on the same GPU.
            device_memory.release_pool()


def free_bytes() -> int:
    """Return ``device_memory.free_bytes`` of this worker, for ``Client.run``. Errors as for ``typed_errors``."""
    with typed_errors("reading its GPU's free memory"):
        return device_memory.free_bytes()


def _free() -> int | str:
    """Return the free bytes for a message."""
    import cupy

    try:
        return device_memory.free_bytes()
    except cupy.cuda.runtime.CUDARuntimeError:
        # CUDA can't read free memory if there was none for its context.
        return "unknown"
