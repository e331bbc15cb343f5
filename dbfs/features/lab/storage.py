"""The option ``storage`` of ``load``: rows on linked pages from the beginning, and what these take."""

from dataclasses import dataclass, replace

from dbfs import config
from dbfs.base.records import EXCHANGES
from dbfs.building.builder import BuildOptions, RowStorage
from dbfs.building.memory import Estimate
from dbfs.building.on_cpu import HostBuilder
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError
from dbfs.features.living.living import Updates
from dbfs.graph.load import LoadOption, require_exchange
from dbfs.graph.striped import StripedGraph
from dbfs_workers.features.lab import pages as linked
from dbfs_workers.search.partition.stripe import Stripe


@dataclass(frozen=True)
class Storage(LoadOption):
    """How a graph's rows are stored: ``csr``, or ``pages``."""

    storage: str

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        if self.storage == "pages":
            require_exchange("storage='pages'", ("auto", "cuda_ipc"), config.choice("exchange", EXCHANGES))

    def finish(self, graph: StripedGraph) -> None:
        if self.storage == "pages":
            Updates(graph).change("link")


class LinkedRows(RowStorage):
    """Linked pages, on one GPU."""

    name = "pages"

    def require(self, edges: EdgeList, options: BuildOptions, p: int, backend: str, *, mutable: bool) -> None:
        if not mutable:
            raise InvalidOptionError(
                "storage='pages' is for graphs that updates may change: it needs mutable=True. A strategy with "
                "storage=pages copies other graphs to pages itself"
            )
        if (p, backend) != (1, "cuda"):
            here = f"{p} rank{'s' if p > 1 else ''} with backend={backend!r}"
            raise InvalidOptionError(
                f"storage='pages' needs one GPU, dbfs.load(..., ranks=1, backend='cuda'), not {here}; mutable=True "
                "alone takes updates on any ranks"
            )
        if HostBuilder.stores_twice(edges, options):
            raise InvalidOptionError("storage='pages' holds out-edges only: it does not go with in_edges=True")

    def with_updates(
        self, needed: Estimate, stripe: Stripe, directed_edges: int, copies: int, backend: str
    ) -> Estimate:
        updated = replace(needed, update=linked.most_bytes(stripe.n_local, -(-directed_edges // stripe.p)))
        return replace(updated, peaks=(updated.peak_bytes,))
