"""Tasks of a rank whose data comes from a worker that was retired."""

from dataclasses import replace
from typing import Any

from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.shared_rows import share


def arrived(value: Any) -> Any:
    """Return what Dask has brought to this worker, of which peers can map the rows; all else as it is."""
    if not isinstance(value, Partition):
        return value
    # Sharing uses the arrays up, and Dask still counts on those that came.
    return share(replace(value, row_offsets=value.row_offsets.copy(), columns=value.columns.copy()))
