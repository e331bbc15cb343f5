"""Arrays of a saved graph's file into the GPU's memory, without a copy of the file in the host's memory.

Threads read blocks into pinned memory, check them there, and copy what belongs to an array to the GPU. One thread reads
and checks about 2 GB/s of a file in the page cache; the copies overlap with the other threads' reads.
"""

from __future__ import annotations

import queue
from typing import Any, Final

import numpy as np

from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved.blocks import in_threads, read_blocks, require_size
from dbfs_workers.features.saved.manifest import SavedFile
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.failures import on_gpu

# Pinned memory of a thread: so small that pinning takes milliseconds, and so large that a read takes longer than to
# start one.
_STAGE_BYTES: Final = 2**24


def upload(folder: Folder, file: SavedFile, threads: int) -> list[Any]:
    """Return the arrays of a saved file as CuPy's, in the manifest's order.

    Args:
        folder, file, threads: as of ``blocks.Content``.

    Raises:
        MissingFileError, UnreadableFileError, TruncatedFileError, FormatError: see ``blocks.Content``.
        GraphTooLargeError, DeviceFailedError: the GPU is full, or failed.
    """
    import cupy

    require_size(folder, file, folder.size(file.name))
    where = f"loading {folder.file(file.name)}"
    with on_gpu(where):
        device_memory.require(sum(place.end - place.offset for place in file.arrays), where)
        arrays = [cupy.empty(place.length, place.dtype) for place in file.arrays]
        device = cupy.cuda.runtime.getDevice()
        step = max(1, _STAGE_BYTES // file.block_bytes) * file.block_bytes
        stages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(threads):
            stages.put(cupy.cuda.alloc_pinned_memory(step))

        def copy(start: int) -> None:
            cupy.cuda.runtime.setDevice(device)
            stop = min(start + step, file.nbytes)
            stage = stages.get()
            try:
                read_blocks(folder, file, start, np.frombuffer(stage, np.uint8, stop - start).data)
                with cupy.cuda.Stream(non_blocking=True) as stream:
                    for place, array in zip(file.arrays, arrays, strict=True):
                        low, high = max(start, place.offset), min(stop, place.end)
                        if low < high:
                            to, source = array.data.ptr + low - place.offset, stage.ptr + low - start
                            kind = cupy.cuda.runtime.memcpyHostToDevice
                            cupy.cuda.runtime.memcpyAsync(to, source, high - low, kind, stream.ptr)
                    stream.synchronize()
            finally:
                stages.put(stage)

        in_threads(copy, range(0, file.nbytes, step), threads)
        return arrays
