"""Merrill 2012, section 5: four ways to take one frontier to the next, over the same operators."""

from dbfs_workers.cuda.lab_layout import LabCounter
from dbfs_workers.lab.enactor import Enactor
from dbfs_workers.lab.problem import Queue

_QUEUED, _EXPANDED, _EDGES, _LABELLED = (
    LabCounter.QUEUED,
    LabCounter.EXPANDED,
    LabCounter.EDGES,
    LabCounter.LABELLED,
)


def expand_contract(run: Enactor) -> None:
    """Enact section 5.1: vertex queue to vertex queue."""
    run.vertex_queue_to_vertex_queue("expand_contract", "expand_contract")


def two_phase(run: Enactor) -> None:
    """Enact section 5.3: vertex queue to edge queue to vertex queue."""
    run.problem.start(run.source)
    queue, edges = run.problem.vertex_queue(), run.problem.edge_queue()
    queue.ids[0] = run.source
    size = distance = 1
    while size:
        run.enter(size)
        expanded = run.queued("two_phase", "expand", queue, size, edges, distance)
        contracted = run.queued("two_phase", "contract", edges, int(expanded[_QUEUED]), queue, distance)
        size, distance = int(contracted[_QUEUED]), distance + 1
        run.leave(int(expanded[_EXPANDED]), int(expanded[_EDGES]), size)


def contract_expand(run: Enactor) -> None:
    """Enact section 5.2: edge queue to edge queue."""
    _from_edge_queues(run, two_phase_from=None)


def hybrid(run: Enactor) -> None:
    """Enact section 5.4: contract-expand for short edge queues, two-phase for long ones."""
    _from_edge_queues(run, two_phase_from=run.problem.tuning.two_phase_from)


def _from_edge_queues(run: Enactor, two_phase_from: int | None) -> None:
    """Label and expand edge queue after edge queue. From ``two_phase_from`` entries on, in two launches."""
    queue, after = run.problem.edge_queue(), run.problem.edge_queue()
    vertices = None if two_phase_from is None else run.problem.vertex_queue()
    queue.ids[0] = run.source
    if queue.parents is not None:
        queue.parents[0] = run.source
    size, distance = 1, 0
    # The frontier of a level is known with the labels, which the launch sets that expands it.
    expanded: tuple[int, int] | None = None
    while size:
        run.enter(size)
        if vertices is not None and two_phase_from is not None and size >= two_phase_from:
            labelled, edges = _in_two_phases(run, queue, size, vertices, after, distance)
        else:
            counts = run.queued("contract_expand", "contract_expand", queue, size, after, distance)
            labelled, edges = int(counts[_LABELLED]), int(counts[_EDGES])
        if expanded is not None:
            run.leave(*expanded, labelled)
        expanded = (labelled, edges)
        queue, after, size, distance = after, queue, edges, distance + 1
    if expanded is not None and expanded[0]:
        run.leave(*expanded, 0)


def _in_two_phases(
    run: Enactor, queue: Queue, size: int, vertices: Queue, after: Queue, distance: int
) -> tuple[int, int]:
    """Contract an edge queue and expand the vertices; return the numbers of both."""
    labelled = int(run.queued("two_phase", "contract", queue, size, vertices, distance)[_QUEUED])
    if not labelled:
        return 0, 0
    return labelled, int(run.queued("two_phase", "expand", vertices, labelled, after, distance)[_QUEUED])
