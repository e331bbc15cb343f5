"""Merrill 2012, section 5: four ways to take one frontier to the next, over the same operators."""

from dataclasses import replace

from dbfs_workers.features.lab.enactor import Enactor, Step
from dbfs_workers.features.lab.layout import LabCounter


def expand_contract(run: Enactor) -> None:
    """Enact section 5.1: vertex queue to vertex queue."""
    vertex_queue_to_vertex_queue(run, "expand_contract", "expand_contract")


def vertex_queue_to_vertex_queue(run: Enactor, source: str, kernel: str, **arguments: int) -> None:
    """Run a strategy with one launch a level, which takes a vertex queue to the next one."""
    queue, after = run.problem.vertex_queue(), run.problem.vertex_queue()
    run.problem.start(run.source)
    after.ids[0] = run.source
    steps = [[run.step(source, kernel, queue, after)], [run.step(source, kernel, after, queue)]]
    run.by_levels(steps, ahead=run.policy.wait == "chain", **arguments)


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
    """Enact section 5.4: two-phase for edge queues of more entries than threads run at once, else contract-expand."""
    given = run.problem.tuning.two_phase_from
    _from_edge_queues(run, two_phase_from=run.resident_threads + 1 if given is None else given)


def _from_edge_queues(run: Enactor, two_phase_from: int | None) -> None:
    """Label and expand edge queue after edge queue. From ``two_phase_from`` entries on, in two launches."""
    queues = run.problem.edge_queue(), run.problem.edge_queue()
    # The parity of a level's distance chooses the queue that the level reads.
    ways = [(queues[parity], queues[1 - parity]) for parity in (0, 1)]
    short = [[run.step("contract_expand", "contract_expand", queue, after)] for queue, after in ways]
    long: list[list[Step]] = short
    if two_phase_from is not None:
        # Each launch takes only queues of its own kind, so that a chain ends where the other kind begins.
        vertices = run.problem.vertex_queue()
        short = [[replace(step, sizes=(0, two_phase_from - 1)) for step in level] for level in short]
        long = []
        for queue, after in ways:
            contract = run.step("two_phase", "contract", queue, vertices)
            sizes = (two_phase_from, contract.sizes[1])
            long.append([replace(contract, sizes=sizes), run.step("two_phase", "expand", vertices, after)])
    queues[0].ids[0] = run.source
    if queues[0].parents is not None:
        queues[0].parents[0] = run.source
    size, distance = 1, 0
    rule = run.ahead()
    # The frontier of a level is known with the labels, which the launch sets that expands it.
    expanded: tuple[int, int] | None = None
    while size:
        in_two = two_phase_from is not None and size >= two_phase_from
        run.enter(size, rule.levels)
        chosen = [(long if in_two else short)[(distance + at) % 2] for at in range(rule.levels)]
        rows = run.chain(chosen, size, distance)
        done: list[tuple[int, int, int]] = []
        before = size
        wanted = [LabCounter.LOOKED_AT, LabCounter.LABELLED, LabCounter.EDGES]
        for looked_at, labelled, edges in rows[:, wanted].tolist():
            if size and looked_at:
                if expanded is not None:
                    done.append((*expanded, labelled))
                expanded, size, distance = (labelled, edges), edges, distance + 1
        if expanded is not None and expanded[0] and not size:
            done.append((*expanded, 0))
        run.leave(done)
        # A chain that ended because the other kind of launch begins is followed by one level.
        rule.follow(before if rows[-1, LabCounter.LOOKED_AT] else 0, size)
