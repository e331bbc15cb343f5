"""What a GPU's failures become: dbfs's errors, which every client can read, whether or not it has CuPy."""

from collections.abc import Iterator
from contextlib import contextmanager

from dbfs_workers.cuda import device_memory
from dbfs_workers.errors import GraphTooLargeError, RunAbortedError


@contextmanager
def typed_errors(who: str) -> Iterator[None]:
    """Raises CuPy's errors as dbfs's, beginning with ``who``.

    Raises:
        GraphTooLargeError: the GPU has too little memory left.
        RunAbortedError: anything else that CUDA reports.
    """
    import cupy

    # None as the cause of dbfs's: Dask pickles causes along, and a client that can't read CuPy's would read neither.
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise GraphTooLargeError(f"{who}: {error}; {_free()} bytes are free on its GPU") from None
    # The driver's: kernels are loaded and launched by it.
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        if "MemoryAllocation" in str(error) or "OUT_OF_MEMORY" in str(error):
            raise GraphTooLargeError(f"{who}: its GPU has no memory left, {_free()} bytes are free") from None
        raise RunAbortedError(f"{who}: its GPU failed: {error}") from None


def room() -> int:
    """What ``device_memory.room`` says, to be asked from afar.

    Raises:
        GraphTooLargeError: there is not even room for CUDA's context.
        RunAbortedError: CUDA does not say.
    """
    with typed_errors("looking for room on its GPU"):
        return device_memory.room()


def _free() -> int | str:
    import cupy

    try:
        return device_memory.room()
    except cupy.cuda.runtime.CUDARuntimeError:
        # Without a context it does not say.
        return "unknown"
