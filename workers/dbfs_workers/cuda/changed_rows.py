"""The rows whose distance a repair has changed, as a bitmap on the GPU until a caller reads them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.stripe import WORD_BITS


class ChangedRows:
    """The rows whose distance has changed.

    Args:
        bits: uint32[n_local / 32] on the GPU, a bitmap of the rows.
    """

    def __init__(self, bits: Any) -> None:
        self._bits = bits

    def get(self) -> NDArray[np.uint32]:
        """Return the rows: uint32, ascending, on the host."""
        import cupy

        words: NDArray[np.uint32] = cupy.asnumpy(self._bits)
        found = np.flatnonzero(words)
        bits = np.unpackbits(words[found].astype("<u4").view(np.uint8), bitorder="little").reshape(-1, WORD_BITS)
        places, bits_set = np.nonzero(bits)
        return (found[places] * WORD_BITS + bits_set).astype(np.uint32)
