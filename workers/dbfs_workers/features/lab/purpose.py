"""A strategy of the laboratory as the purpose of a run."""

from dataclasses import dataclass

from dbfs_workers.base.spec import Purpose, TraversalSpec
from dbfs_workers.features.lab.strategies import Policy, parse


@dataclass(frozen=True)
class ByStrategy(Purpose):
    """A run whose traversals are made by a strategy.

    Attributes:
        strategy: the strategy with its options, as callers write it.
    """

    strategy: str

    @property
    def policy(self) -> Policy:
        """The strategy and its options."""
        return parse(self.strategy)


def strategy_of(spec: TraversalSpec) -> ByStrategy:
    """Return the purpose of a spec whose traversal is made by a strategy."""
    assert isinstance(spec.purpose, ByStrategy)
    return spec.purpose
