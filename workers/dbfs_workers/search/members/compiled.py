"""Which CPU kernels a rank's traversals call: those without which it can't traverse, and those that make it faster."""

from dbfs_workers.search.cpu import kernels as phases
from dbfs_workers.search.exchange import kernels as exchange
from dbfs_workers.search.levels import kernels as levels
from dbfs_workers.search.partition import kernels as partition


def needed(p: int, *, hosts: int = 1) -> tuple[str, ...]:
    """Return the kernels without which a rank can't traverse a graph in stripes, as ``compiling.found`` takes them.

    Args:
        p: ranks of the gang.
        hosts: hosts of the gang.
    """
    return *phases.NEEDED, *partition.NEEDED, *exchange.needed(p, hosts)


def faster(p: int, threads: int) -> tuple[tuple[str, ...], ...]:
    """Return the kernels that make a rank's runs faster, those that are used together in a tuple of their own.

    Args:
        p: ranks of the gang.
        threads: threads of a rank.
    """
    return levels.TOP_DOWN, *((levels.LED,) if p > 1 else ()), *((phases.TEAM,) if threads > 1 else ())
