"""The laboratory: the strategies of the papers, which ``Graph.bfs(strategy=...)`` takes by name."""

from dbfs_workers.features.lab.strategies import CHOICES, STRATEGIES, Policy, Strategy, parse

__all__ = ["CHOICES", "STRATEGIES", "Policy", "Strategy", "parse"]
