"""Tödling's dynamic parallelism: kernels that launch kernels."""

from typing import Final

from dbfs_workers.cuda.lab_layout import LabCounter
from dbfs_workers.errors import BackendUnavailableError
from dbfs_workers.lab.enactor import Enactor
from dbfs_workers.lab.merrill import vertex_queue_to_vertex_queue

_RECORD: Final = [LabCounter.EXPANDED, LabCounter.EDGES, LabCounter.LABELLED]


def device_loop(run: Enactor) -> None:
    """Enact the main loop on the device: the host launches a chain of many levels."""
    tuning = run.problem.tuning
    queues = run.problem.vertex_queue(), run.problem.vertex_queue()
    steps = [run.step("device_loop", "device_loop", queues[turn], queues[1 - turn]) for turn in (0, 1)]
    run.problem.start(run.source)
    queues[0].ids[0] = run.source
    size, distance = 1, 1
    while size:
        run.enter(size)
        step = steps[(distance - 1) % 2]
        rows = run.many_levels(step, 1, (1, run.problem.rows), size, distance, most_blocks=tuning.most_blocks)
        done: list[tuple[int, int, int]] = [tuple(row) for row in rows[:, _RECORD].tolist() if row[0]]
        if not done:
            raise BackendUnavailableError(
                f"strategy device-loop, level {distance - 1}: the GPU took no launch by a kernel"
            )
        run.leave(done)
        size, distance = done[-1][2], distance + len(done)


def child_kernels(run: Enactor) -> None:
    """Enact a launch a level, whose threads launch kernels for long lists."""
    tuning = run.problem.tuning
    sizes = {"grid_degree": tuning.child_degree, "most_blocks": tuning.most_blocks}
    sizes["most_children"] = tuning.most_children
    vertex_queue_to_vertex_queue(run, "child_kernels", "child_kernels", **sizes)
