"""What a build of lost ranks has of the ranks that stand."""

from dataclasses import dataclass

from dbfs.base.records import GraphRecord
from dbfs.cluster.gang import Ref


@dataclass(frozen=True)
class Standing:
    """What is left of a graph that lost ranks, for a build of the lost ranks alone.

    Attributes:
        record: the graph before the loss, on the workers of the build but for the lost ranks.
        lost: the ranks to build.
        ordered: whether a worker has the order by degree, if there is one.
    """

    record: GraphRecord
    lost: tuple[int, ...]
    ordered: bool

    @property
    def order(self) -> Ref | None:
        """The order by degree; None without one, or if it is lost."""
        key = self.record.order_key
        return None if key is None or not self.ordered else Ref(key)

    def partition(self, rank: int) -> Ref | None:
        """Return the partition of a rank; None if it is lost."""
        return None if rank in self.lost else Ref(self.record.partition_keys[rank])
