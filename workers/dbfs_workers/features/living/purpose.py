"""A repair as the purpose of a run: the labels of an earlier traversal, of the latest version."""

from dataclasses import dataclass

from dbfs_workers.base.spec import Purpose, TraversalPlace


@dataclass(frozen=True)
class Repair(Purpose):
    """A run that repairs labels, or traverses anew where that takes less time.

    Attributes:
        place: the earlier traversal, with the same sources and options.
    """

    place: TraversalPlace

    @property
    def replaced(self) -> TraversalPlace:
        return self.place


def place_of(purpose: Purpose | None) -> TraversalPlace:
    """Return the traversal whose labels a repair replaces."""
    assert isinstance(purpose, Repair)
    return purpose.place
