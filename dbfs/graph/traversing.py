"""Traversals of a graph: the check of a call's options, one run, and runs ahead of the caller."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from dbfs import engines
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption, run_reporter
from dbfs.base.records import RunProgress
from dbfs.cluster.awaiting import require_open
from dbfs.cluster.deadline import of_call
from dbfs.errors import InvalidOptionError, NoRoomForLabelsError, RunCancelledError, WorkerLostError
from dbfs.graph.striped import LabelsOnWorkers, StripedGraph
from dbfs.service.client import ServiceClient
from dbfs_workers.base.errors import DeletedVertexError
from dbfs_workers.base.spec import DIRECTIONS, Purpose, RunSpec, TraversalSpec

R = TypeVar("R", bound=LabelsOnWorkers)
T = TypeVar("T")


def traverse(
    graph: StripedGraph,
    made: Callable[[StripedGraph, TraversalSpec, str, engines.Outcome], R],
    source_sets: Sequence[tuple[int, ...]],
    *,
    targets: tuple[int, ...] = (),
    predecessors: bool = False,
    max_depth: int | None = None,
    direction: str = "auto",
    engine: str = "auto",
    progress: ProgressOption[RunProgress] = None,
    purpose: Purpose | None = None,
    ready: Callable[[], object] | None = None,
) -> list[R]:
    """Run a traversal from each set of vertices, in one run; ``made`` makes a result of each.

    ``purpose`` is what is made instead: see ``TraversalSpec``. ``ready`` has the ranks make ready what it needs: it is
    called before the run, and again if the graph came back. Other arguments and the errors are as of ``Graph.bfs``.
    """
    require_options(graph, direction, max_depth)
    runner = engines.choose(graph.engines, engine, graph.record.layout_name)

    def attempt() -> list[R]:
        if ready is not None:
            ready()
        options = TraversalSpec(
            run_id=uuid.uuid4().hex,
            sources=(),
            predecessors=predecessors,
            backend=graph.backend,
            direction=direction,
            max_depth=max_depth,
            targets=targets,
            purpose=purpose,
        )
        run = RunSpec(options, tuple(source_sets))
        # A result that this list does not get any more, because the run ends early, frees its labels.
        return [made(graph, spec, runner.name, outcome) for spec, outcome in finished(graph, runner, run, progress)]

    results, attempts = begun_again(graph, attempt)
    for result in results:
        result.attempts = attempts
    graph.results.update(results)
    return results


def begun_again(graph: StripedGraph, attempt: Callable[[], T]) -> tuple[T, int]:
    """Make a run, and again if it lost a worker and the graph comes back; return what it made, and how often."""
    made = 0
    while True:
        made += 1
        try:
            return attempt(), made
        except WorkerLostError as error:
            if not graph.begins_again(error, made):
                raise


def require_options(graph: StripedGraph, direction: str, max_depth: int | None) -> None:
    """Check what all calls that traverse have in common; errors as of ``Graph.bfs``."""
    graph.require_loaded()
    if direction not in DIRECTIONS:
        raise InvalidOptionError(f"unknown direction {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    if max_depth is not None:
        whole_count(max_depth, "max_depth")


def finished(
    graph: StripedGraph, runner: engines.Engine, run: RunSpec, progress: ProgressOption[RunProgress]
) -> Iterator[tuple[TraversalSpec, engines.Outcome]]:
    """Send a run, and yield its traversals as they finish; errors as of ``Graph.bfs``.

    The progress counts sources where the run's purpose has each traversed from by itself.
    """
    purpose = run.options.purpose
    by_source = purpose is not None and purpose.by_source
    counts = [len(sources) if by_source else 1 for sources in run.sources]
    ends = [0, *itertools.accumulate(counts)]
    version = graph.record.version
    try:
        with run_reporter(progress, graph.name, graph.n, ends[-1]) as report:

            def of_sources(made: RunProgress) -> None:
                assert report is not None
                report(replace(made, traversals=ends[-1], finished=ends[made.finished] + made.completed, completed=0))

            told = of_sources if report is not None and by_source else report
            with contextlib.closing(
                runner.traverse(graph.gang, graph.record, run, of_call(), told, graph.numbering.in_positions)
            ) as outcomes:
                for spec, made in zip(run, outcomes, strict=True):
                    version = made.version
                    yield spec, made
    except DeletedVertexError as error:
        raise graph.deletions.named(error) from error
    except RunCancelledError:
        # The scheduler cancels the runs of a client that closes, and its answer may come before the client's loop ends.
        require_open(graph.gang.client)
        raise
    except WorkerLostError as error:
        if why := ServiceClient.of(graph.gang.client).why_lost(graph.record.graph_id):
            raise WorkerLostError(f"{error}; {why}") from error
        raise
    if version != graph.record.version:
        # Another client has updated the graph.
        graph.refresh()


def require_one_version(graph: StripedGraph, first: int, later: int) -> None:
    """Check that the graph was not updated between two traversals of a call.

    Raises:
        InvalidOptionError: another client updated the graph in between.
    """
    if first != later:
        raise InvalidOptionError(
            f"{graph.name} was updated from version {first} to {later} during the call, whose traversals must be of "
            "one version; call again, after freeze() if other clients go on"
        )


MOST_TRAVERSALS = 16
"""Largest number of traversals of one run. A run costs about as much as a few traversals of a small graph."""


def stream(sources: Iterable[int], traverse: Callable[[list[int]], list[R]]) -> Iterator[R]:
    """Yield the result of a traversal from each source, in order.

    The next run starts when the caller has taken all results of the run before. The first run makes one traversal, and
    each later run up to twice as many. If their labels do not fit, a run makes fewer.

    Args:
        sources: sources, read as they are needed.
        traverse: makes one run, with a traversal from each source.

    Errors as for ``traverse``.
    """
    remaining = iter(sources)
    size, most = 1, MOST_TRAVERSALS
    waiting: list[int] = []
    while True:
        waiting += itertools.islice(remaining, max(0, size - len(waiting)))
        if not waiting:
            return
        try:
            results = traverse(waiting[:size])
        except NoRoomForLabelsError:
            if size == 1:
                raise
            size = most = size // 2
            continue
        del waiting[:size]
        # No reference stays here: the labels are dropped with the caller's last reference to the result.
        results.reverse()
        while results:
            yield results.pop()
        size = min(2 * size, most)
