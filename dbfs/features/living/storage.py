"""The option ``storage`` of ``load``: rows on linked pages from the beginning."""

from dataclasses import dataclass
from typing import Final

from dbfs import config
from dbfs.base.records import EXCHANGES
from dbfs.errors import InvalidOptionError
from dbfs.features.living.living import Updates
from dbfs.graph.load import LoadOption, require_exchange
from dbfs.graph.striped import StripedGraph
from dbfs_workers.base.text import counted

STORAGES: Final = ("csr", "pages")
"""What ``load`` takes as ``storage``."""


@dataclass(frozen=True)
class Storage(LoadOption):
    """How a graph's rows are stored: one of ``STORAGES``."""

    storage: str

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        """See ``LoadOption``."""
        if self.storage not in STORAGES:
            raise InvalidOptionError(f"unknown storage {self.storage!r}; choose one of {', '.join(STORAGES)}")
        if self.storage == "csr":
            return
        if not mutable:
            raise InvalidOptionError(
                "storage='pages' is for graphs that updates may change: it needs mutable=True. A strategy with "
                "storage=pages copies other graphs to pages itself"
            )
        if (ranks, backend) != (1, "cuda"):
            here = f"{counted(ranks, 'rank')} with backend={backend!r}"
            raise InvalidOptionError(
                f"storage='pages' needs one GPU, dbfs.load(..., ranks=1, backend='cuda'), not {here}; "
                "mutable=True alone takes updates on any ranks"
            )
        require_exchange("storage='pages'", ("auto", "cuda_ipc"), config.choice("exchange", EXCHANGES))

    def finish(self, graph: StripedGraph) -> None:
        """See ``LoadOption``."""
        if self.storage == "pages":
            Updates(graph).change("link")
