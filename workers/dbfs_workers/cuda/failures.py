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
        raise GraphTooLargeError(f"{who}: {error}; {device_memory.room()} bytes are free on its GPU") from None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if "MemoryAllocation" in str(error):
            free = device_memory.room()
            raise GraphTooLargeError(f"{who}: its GPU has no memory left, {free} bytes are free") from None
        raise RunAbortedError(f"{who}: its GPU failed: {error}") from None
