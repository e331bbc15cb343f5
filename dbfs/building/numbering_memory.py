"""The memory of a rank while ids are numbered: before the build, and on workers' memory also if that is on GPUs."""

from dbfs.edges.edge_list import DistinctIds, EdgeList
from dbfs.errors import EdgeInputError
from dbfs_workers.storage.pieces import batches_of
from dbfs_workers.storage.stripe import MOST_SMALL_IDS

# Slots of a hash table for each distinct id, at most, in bytes.
_SLOT_BYTES_PER_ID = 22
# Pieces that edges are cut into at most, to read the first one.
_MOST_PIECES = 1 << 16


def numbering_bytes(edges: EdgeList, m: int, p: int, ids: DistinctIds, batch_edges: int) -> dict[str, int]:
    """Estimate the bytes of a rank while ``tasks.numbering`` numbers the ids of an edge list, by part.

    Assumes that the edges, and the ranges of ids, are spread evenly over the ranks, and that each rank's pieces have as
    many distinct ids as they can.

    Args:
        edges: the edge list.
        m: number of its edges.
        p: number of ranks.
        ids: the distinct ids of all ranks.
        batch_edges: edges that a rank reads at once.
    """
    count = -(-m // p)
    size = ids.nbytes / max(ids.count, 1)
    # Distinct ids of a rank, and ids of its range.
    found, owned = min(ids.count, 2 * count), -(-ids.count // p)
    # The ids of a batch as they are decoded, in one array, and their codes. A batch of strings has a quarter of the
    # edges; as much as the rest is held in compressed pages and dictionaries (measured).
    pieces = int(2 * (2 * size + 4) * batch_edges)
    # The hash table beside its ids, which a longer array replaces now and then.
    reading = int(found * (_SLOT_BYTES_PER_ID + 2 * size))
    # The ids, and by range again; the range of each, and their order.
    splitting = found * (2 * size + 14)
    # The parts of all ranks, their codes and the order; of the rank's range a hash table, or the ids while these are
    # sorted.
    uniting = found * (size + 8) + owned * (2 * size + 28)
    # A piece gives way to its codes, which are as large as its edges between vertices.
    parts = {"edges": max(edge_bytes(ids.count) * count, -(-edges.held_bytes // p))}
    if reading + pieces > max(splitting, uniting):
        return parts | {"distinct ids": reading, "pieces": pieces}
    return parts | {"distinct ids": int(max(splitting, uniting))}


def edge_bytes(n: int) -> int:
    """Return the bytes of an edge between two of n vertices whose ids were numbered."""
    return 8 if n <= MOST_SMALL_IDS else 16


def assumed_ids(edges: EdgeList, m: int, vertices: int) -> DistinctIds:
    """Return what ``vertices`` distinct ids take that are as long, on average, as those of the first edges.

    Reads the beginning of the first of many pieces of ``m`` edges.

    Raises:
        EdgeInputError, FormatError: the first edges can't be read.
    """
    src, dst = next(iter(batches_of(edges.cut(max(1, m // _MOST_PIECES))[0])))
    count = len(src) + len(dst)
    if count == 0 and vertices:
        raise EdgeInputError(f"{edges.name} has no edges at its beginning; expected ids whose length counts")
    return DistinctIds(vertices, round(vertices * (int(src.nbytes) + int(dst.nbytes)) / max(count, 1)))
