"""What a GPU's failures become: dbfs's errors, which every client can read, whether or not it has CuPy."""

from collections.abc import Iterator
from contextlib import contextmanager

from dbfs_workers.errors import GraphTooLargeError, RunAbortedError


def free_bytes() -> int:
    """Of the current GPU, with what CuPy holds and does not use."""
    import cupy

    return int(cupy.cuda.Device().mem_info[0] + cupy.get_default_memory_pool().free_bytes())


@contextmanager
def typed_errors(who: str) -> Iterator[None]:
    """Raises CuPy's errors as dbfs's, beginning with ``who``.

    Raises:
        GraphTooLargeError: the GPU has too little memory left.
        RunAbortedError: anything else that CUDA reports.
    """
    import cupy

    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise GraphTooLargeError(f"{who}: {error}; {free_bytes()} bytes are free on its GPU") from error
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RunAbortedError(f"{who}: its GPU failed: {error}") from error
