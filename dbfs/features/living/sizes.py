"""What updates of a graph take of a rank's memory, beside the partition."""

from dataclasses import replace
from typing import Final

from dbfs.building.builder import CSR, RowStorage
from dbfs.building.memory import Estimate
from dbfs_workers.features.living import row_versions
from dbfs_workers.search.cuda import sizes
from dbfs_workers.search.partition.stripe import Stripe

# An id of ten letters that came later, in Python's list and dictionary: see ``LaterIds``.
_LATER_ID_BYTES: Final = 200


class VersionRows(RowStorage):
    """Rows of versions: in pages on CPUs after the first update, in a second CSR on GPUs."""

    name = CSR

    def with_updates(
        self, needed: Estimate, stripe: Stripe, directed_edges: int, copies: int, backend: str
    ) -> Estimate:
        m_local = -(-directed_edges // stripe.p)
        if backend == "cuda":
            version = sum(sizes.partition(stripe, m_local, in_edges=copies == 2).values())
            updated = replace(needed, update={"next version": version})
            return replace(updated, peaks=(updated.peak_bytes,))
        pages = copies * row_versions.most_bytes(stripe.n_local, m_local)
        # The pages take the place of the CSR.
        csr = copies * (8 * (stripe.n_local + 1) + 4 * m_local)
        later = {"later ids": _LATER_ID_BYTES * stripe.room} if "ids" in needed.partition and stripe.room else {}
        kept = needed.partition.get("attributes", 0)
        # The tables of a version are made of those of an earlier one, and of its edges.
        tables = {"next attributes": kept + csr} if kept else {}
        updated = replace(needed, update={"pages": pages - csr, "next pages": pages, **later, **tables})
        return replace(updated, peaks=(updated.peak_bytes,))
