"""The option ``storage`` of ``load``: rows on linked pages from the beginning."""

from dataclasses import dataclass

from dbfs import config
from dbfs.base.records import EXCHANGES
from dbfs.features.living.living import Updates
from dbfs.graph.load import LoadOption, require_exchange
from dbfs.graph.striped import StripedGraph


@dataclass(frozen=True)
class Storage(LoadOption):
    """How a graph's rows are stored: ``csr``, or ``pages``."""

    storage: str

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        """See ``LoadOption``."""
        if self.storage == "pages":
            require_exchange("storage='pages'", ("auto", "cuda_ipc"), config.choice("exchange", EXCHANGES))

    def finish(self, graph: StripedGraph) -> None:
        """See ``LoadOption``."""
        if self.storage == "pages":
            Updates(graph).change("link")
