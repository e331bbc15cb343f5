"""Strategies with exact vertex queues, whose vertices are claimed by atomic operations: Tödling's and Luo's.

They have one queue, or one for each class of vertices; a launch by the host for each level, or one for many levels, or
launches by kernels.
"""

from dbfs_workers.base.errors import BackendUnavailableError
from dbfs_workers.features.lab.enactor import RECORD, Enactor
from dbfs_workers.features.lab.layout import CLASSES, LabCounter
from dbfs_workers.features.lab.merrill import vertex_queue_to_vertex_queue

_CLASSES = slice(LabCounter.QUEUED_THREADS, LabCounter.QUEUED_THREADS + CLASSES)
_NO_DEGREE = (1 << 32) - 1
_KERNELS = ("by_threads", "by_warps", "by_blocks", "by_grid")


def atomic_queue(run: Enactor) -> None:
    """Enact a queue whose vertices are claimed by atomic operations: vertex queue to vertex queue."""
    vertex_queue_to_vertex_queue(run, "atomic_queue", "atomic_queue")


def degree_classes(run: Enactor) -> None:
    """Enact a queue and a launch for each class of vertices, sorted while exploring or by a launch behind the level."""
    problem, source, classes = run.problem, "degree_classes", int(run.policy.classes)
    problem.start(run.source)
    queue = problem.class_queues(classes)
    # With three classes, no list is long enough for the grid.
    common = {"grid_degree": problem.tuning.grid_degree if classes == CLASSES else _NO_DEGREE}
    sort: list[tuple[str, int, dict[str, int]]] = []
    if run.policy.sorting == "pass":
        found, after = problem.class_queues(1), queue
        sort = [("sort_by_class", problem.rows, {"in_ids": run.address(found), "out_ids": run.address(queue)})]
        common.update(out_capacity=problem.rows, flags=0)
    else:
        found = after = problem.class_queues(classes)
        flags = problem.flags()
        common["flags"] = run.address(flags)
        run.launched(source, [("write_classes", problem.rows, {})], 0, **common)
    # A queue of one vertex is right in any class; its own has to be read from the device.
    queue[0, 0] = run.source
    # Threads that a class needs for an entry: the grid takes all there are.
    units = (1, 32, problem.tuning.threads, problem.tuning.threads * problem.tuning.most_blocks)
    sizes, distance = [1] + [0] * (CLASSES - 1), 1
    while any(sizes):
        run.enter(sum(sizes))
        common["out_ids"] = run.address(found if sort else after)
        launches = [
            (kernel, size * units[which], {"in_ids": run.address(queue[which]), "in_size": size})
            for which, (kernel, size) in enumerate(zip(_KERNELS, sizes, strict=True))
            if size
        ] + sort
        counts = run.launched(source, launches, distance, **common)
        run.leave([tuple(counts[RECORD].tolist())])
        queue, after, sizes, distance = after, queue, counts[_CLASSES].tolist(), distance + 1


def hierarchical(run: Enactor) -> None:
    """Enact Luo's levels: of one block, of a block for each multiprocessor, or of a launch."""
    tuning = run.problem.tuning
    queues = run.problem.vertex_queue(), run.problem.vertex_queue()
    ways = [(queues[parity], queues[1 - parity]) for parity in (0, 1)]
    alone = [run.step("hierarchical", "in_launch", *way) for way in ways]
    block = [run.step("hierarchical", "in_block", *way) for way in ways]
    grid = [run.step("hierarchical", "in_grid", *way) for way in ways]
    run.problem.start(run.source)
    queues[0].ids[0] = run.source
    size, distance = 1, 1
    while size:
        run.enter(size)
        parity = (distance - 1) % 2
        if size > tuning.grid_frontier:
            rows = run.chain([[alone[parity]]], size, distance)
        elif size > tuning.block_frontier:
            # The least is lower than the block's most, so that a frontier near it does not change hands each level.
            sizes = (tuning.block_frontier // 2 + 1, tuning.grid_frontier)
            rows = run.many_levels(grid[parity], run.multiprocessors, sizes, size, distance)
        else:
            rows = run.many_levels(block[parity], 1, (1, tuning.block_frontier), size, distance)
        done: list[tuple[int, int, int]] = [tuple(row) for row in rows[:, RECORD].tolist() if row[0]]
        run.leave(done)
        size, distance = done[-1][2], distance + len(done)


def device_loop(run: Enactor) -> None:
    """Enact the main loop on the device, with child kernels if the policy says so: the host launches many levels."""
    sizes = _children(run)
    if run.policy.children == "none":
        sizes["most_children"] = 0
    queues = run.problem.vertex_queue(), run.problem.vertex_queue()
    steps = [run.step("device_launches", "device_loop", queues[parity], queues[1 - parity]) for parity in (0, 1)]
    run.problem.start(run.source)
    queues[0].ids[0] = run.source
    size, distance = 1, 1
    while size:
        run.enter(size)
        step = steps[(distance - 1) % 2]
        rows = run.many_levels(step, 1, (1, run.problem.rows), size, distance, **sizes)
        done: list[tuple[int, int, int]] = [tuple(row) for row in rows[:, RECORD].tolist() if row[0]]
        if not done:
            raise BackendUnavailableError(
                f"strategy device-loop, level {distance - 1}: the GPU took no launch by a kernel"
            )
        run.leave(done)
        size, distance = done[-1][2], distance + len(done)


def child_kernels(run: Enactor) -> None:
    """Enact a launch a level, whose threads launch kernels for long lists."""
    vertex_queue_to_vertex_queue(run, "device_launches", "child_kernels", **_children(run))


def _children(run: Enactor) -> dict[str, int]:
    """Return the arguments of launches by kernels."""
    tuning = run.problem.tuning
    sizes = {"grid_degree": tuning.child_degree, "most_blocks": tuning.most_blocks}
    return {**sizes, "most_children": tuning.most_children}
