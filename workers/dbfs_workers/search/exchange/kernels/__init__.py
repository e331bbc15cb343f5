"""CPU kernels by which ranks wait for each other, and by which an envoy sends frames between hosts."""

from typing import Final

ON_ONE_HOST: Final = ("dbfs_workers.search.exchange.kernels.barrier",)
ACROSS_HOSTS: Final = ("dbfs_workers.search.exchange.kernels.frames", "dbfs_workers.search.exchange.kernels.envoy")


def needed(p: int, hosts: int) -> tuple[str, ...]:
    """Return the kernels by which ``p`` ranks on so many hosts exchange."""
    return *(ON_ONE_HOST if p > 1 else ()), *(ACROSS_HOSTS if hosts > 1 else ())
