"""Strategies with exact vertex queues: one queue, or one for each class of vertices."""

from dbfs_workers.cuda.lab_layout import CLASSES, LabCounter
from dbfs_workers.lab.enactor import Enactor
from dbfs_workers.lab.merrill import vertex_queue_to_vertex_queue

_CLASSES = slice(LabCounter.QUEUED_THREADS, LabCounter.QUEUED_THREADS + CLASSES)
_EXPANDED, _EDGES, _LABELLED = (LabCounter.EXPANDED, LabCounter.EDGES, LabCounter.LABELLED)
_KERNELS = ("by_threads", "by_warps", "by_blocks", "by_grid")


def atomic_queue(run: Enactor) -> None:
    """Enact a queue whose vertices are claimed by atomic operations: vertex queue to vertex queue."""
    vertex_queue_to_vertex_queue(run, "atomic_queue", "atomic_queue")


def degree_classes(run: Enactor) -> None:
    """Enact a queue and a launch for each class of vertices."""
    problem, source = run.problem, "degree_classes"
    problem.start(run.source)
    queue, after = problem.class_queues(CLASSES), problem.class_queues(CLASSES)
    classes = problem.flags()
    common = {"flags": run.address(classes), "grid_degree": problem.tuning.grid_degree}
    run.launched(source, [("write_classes", problem.rows, {})], 0, **common)
    # A queue of one vertex is right in any class; its own has to be read from the device.
    queue[0, 0] = run.source
    # Threads that a class needs for an entry: the grid takes all there are.
    units = (1, 32, problem.tuning.threads, problem.tuning.threads * problem.tuning.most_blocks)
    sizes, distance = [1] + [0] * (CLASSES - 1), 1
    while any(sizes):
        run.enter(sum(sizes))
        common["out_ids"] = run.address(after)
        launches = [
            (kernel, size * units[which], {"in_ids": run.address(queue[which]), "in_size": size})
            for which, (kernel, size) in enumerate(zip(_KERNELS, sizes, strict=True))
            if size
        ]
        counts = run.launched(source, launches, distance, **common)
        run.leave([(int(counts[_EXPANDED]), int(counts[_EDGES]), int(counts[_LABELLED]))])
        queue, after, sizes, distance = after, queue, counts[_CLASSES].tolist(), distance + 1
