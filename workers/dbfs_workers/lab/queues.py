"""Strategies with one exact vertex queue."""

from dbfs_workers.lab.enactor import Enactor


def atomic_queue(run: Enactor) -> None:
    """Enact a queue whose vertices are claimed by atomic operations: vertex queue to vertex queue."""
    run.vertex_queue_to_vertex_queue("atomic_queue", "atomic_queue")
