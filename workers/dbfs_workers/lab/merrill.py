"""Merrill 2012, section 5: four ways to take one frontier to the next, over the same operators."""

from dbfs_workers.cuda.lab_layout import LabCounter
from dbfs_workers.lab.enactor import Enactor, Step


def expand_contract(run: Enactor) -> None:
    """Enact section 5.1: vertex queue to vertex queue."""
    vertex_queue_to_vertex_queue(run, "expand_contract", "expand_contract")


def vertex_queue_to_vertex_queue(run: Enactor, source: str, kernel: str, **arguments: int) -> None:
    """Run a strategy with one launch a level, which takes a vertex queue to the next one."""
    queue, after = run.problem.vertex_queue(), run.problem.vertex_queue()
    run.problem.start(run.source)
    after.ids[0] = run.source
    turns = [[run.step(source, kernel, queue, after)], [run.step(source, kernel, after, queue)]]
    run.by_levels(turns, ahead=True, **arguments)


def two_phase(run: Enactor) -> None:
    """Enact section 5.3: vertex queue to edge queue to vertex queue."""
    queue, edges = run.problem.vertex_queue(), run.problem.edge_queue()
    run.problem.start(run.source)
    queue.ids[0] = run.source
    steps = [run.step("two_phase", "expand", queue, edges), run.step("two_phase", "contract", edges, queue)]
    run.by_levels([steps], ahead=True)


def contract_expand(run: Enactor) -> None:
    """Enact section 5.2: edge queue to edge queue."""
    _from_edge_queues(run, two_phase_from=None)


def hybrid(run: Enactor) -> None:
    """Enact section 5.4: contract-expand for short edge queues, two-phase for long ones."""
    _from_edge_queues(run, two_phase_from=run.problem.tuning.two_phase_from)


def _from_edge_queues(run: Enactor, two_phase_from: int | None) -> None:
    """Label and expand edge queue after edge queue. From ``two_phase_from`` entries on, in two launches."""
    queues = run.problem.edge_queue(), run.problem.edge_queue()
    # The parity of a level's distance chooses the queue that the level reads.
    ways = [(queues[turn], queues[1 - turn]) for turn in (0, 1)]
    short = [[run.step("contract_expand", "contract_expand", queue, after)] for queue, after in ways]
    long: list[list[Step]] = short
    if two_phase_from is not None:
        vertices = run.problem.vertex_queue()
        long = [
            [run.step("two_phase", "contract", queue, vertices), run.step("two_phase", "expand", vertices, after)]
            for queue, after in ways
        ]
    queues[0].ids[0] = run.source
    if queues[0].parents is not None:
        queues[0].parents[0] = run.source
    size, distance = 1, 0
    rule = run.ahead()
    # The frontier of a level is known with the labels, which the launch sets that expands it.
    expanded: tuple[int, int] | None = None
    while size:
        in_two = two_phase_from is not None and size >= two_phase_from
        levels = 1 if in_two else rule.levels
        run.enter(size, levels)
        chosen = [(long if in_two else short)[(distance + at) % 2] for at in range(levels)]
        counts = run.chain([(step, distance + at) for at, steps in enumerate(chosen) for step in steps], size)
        rows = counts.reshape(levels, -1, counts.shape[1]).sum(axis=1)
        done: list[tuple[int, int, int]] = []
        before = size
        for labelled, edges in rows[:, [LabCounter.LABELLED, LabCounter.EDGES]].tolist():
            if size:
                if expanded is not None:
                    done.append((*expanded, labelled))
                expanded, size, distance = (labelled, edges), edges, distance + 1
        if expanded is not None and expanded[0] and not size:
            done.append((*expanded, 0))
        run.leave(done)
        rule.follow(before, size)
