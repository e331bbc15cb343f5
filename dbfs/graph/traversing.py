"""Traversals of a graph: the check of a call's options, one run, and runs ahead of the caller."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dbfs import engines
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption, run_reporter
from dbfs.base.records import RunProgress
from dbfs.cluster.awaiting import require_open
from dbfs.cluster.deadline import of_call
from dbfs.errors import InvalidOptionError, NoRoomForLabelsError, RunCancelledError, WorkerLostError
from dbfs.graph.result import BFSResult
from dbfs.lab import STRATEGIES, parse
from dbfs.service.client import ServiceClient
from dbfs_workers.base.spec import DIRECTIONS, RunSpec, TraversalSpec
from dbfs_workers.base.text import counted

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph


_ENGINE = "resident"


def traverse(
    graph: Graph,
    source_sets: Sequence[tuple[int, ...]],
    *,
    targets: tuple[int, ...] = (),
    predecessors: bool = False,
    max_depth: int | None = None,
    direction: str = "auto",
    engine: str = "auto",
    progress: ProgressOption[RunProgress] = None,
    strategy: str | None = None,
) -> list[BFSResult]:
    """Run a traversal from each set of vertices, in one run; arguments and errors as of ``Graph.bfs``."""
    require_options(graph, direction, max_depth)
    if strategy is not None:
        plain = max_depth is None and not targets and direction == "auto"
        strategy = require_strategy(graph, strategy, len(source_sets[0]), plain=plain, engine=engine)
        engine = _ENGINE
    runner = engines.choose(engine, graph.record.layout_name)
    options = TraversalSpec(
        run_id=uuid.uuid4().hex,
        sources=(),
        predecessors=predecessors,
        backend=graph.backend,
        direction=direction,
        max_depth=max_depth,
        targets=targets,
        strategy=strategy or "",
    )
    run = RunSpec(options, tuple(source_sets))
    # A result that this list does not get any more, because the run ends early, frees its labels.
    results = [BFSResult(graph, spec, runner.name, made) for spec, made in finished(graph, runner, run, progress)]
    graph.results.update(results)
    return results


def require_options(graph: Graph, direction: str, max_depth: int | None) -> None:
    """Check what all calls that traverse have in common; errors as of ``Graph.bfs``."""
    graph.require_loaded()
    if direction not in DIRECTIONS:
        raise InvalidOptionError(f"unknown direction {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    if max_depth is not None:
        whole_count(max_depth, "max_depth")


def finished(
    graph: Graph, runner: engines.Engine, run: RunSpec, progress: ProgressOption[RunProgress]
) -> Iterator[tuple[TraversalSpec, engines.Outcome]]:
    """Send a run, and yield its traversals as they finish; errors as of ``Graph.bfs``.

    The progress of batches counts sources.
    """
    batches = [len(sources) if run.options.batch else 1 for sources in run.sources]
    ends = [0, *itertools.accumulate(batches)]
    version = graph.record.version
    try:
        with graph.living.named(), run_reporter(progress, graph.name, graph.n, ends[-1]) as report:

            def of_sources(made: RunProgress) -> None:
                assert report is not None
                report(replace(made, traversals=ends[-1], finished=ends[made.finished] + made.completed, completed=0))

            told = of_sources if report is not None and run.options.batch else report
            with contextlib.closing(
                runner.traverse(graph.gang, graph.record, run, of_call(), told, graph.numbering.in_positions)
            ) as outcomes:
                for spec, made in zip(run, outcomes, strict=True):
                    version = made.version
                    yield spec, made
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


def require_one_version(graph: Graph, first: int, later: int) -> None:
    """Check that the graph was not updated between two traversals of a call.

    Raises:
        InvalidOptionError: another client updated the graph in between.
    """
    if first != later:
        raise InvalidOptionError(
            f"{graph.name} was updated from version {first} to {later} during the call, whose traversals must be of "
            "one version; call again, after freeze() if other clients go on"
        )


def require_strategy(graph: Graph, strategy: str, sources: int, *, plain: bool, engine: str) -> str:
    """Check a strategy against the graph and the other options; return the strategy of the spec, empty for the engine.

    Args:
        graph: the graph.
        strategy: a strategy with its options, as callers write it.
        sources: number of sources.
        plain: whether the call has no bound on the depth, no targets, and the direction ``auto``.
        engine: the engine that the call names.

    Errors as for ``Graph.bfs``.
    """
    name = parse(strategy).strategy
    found = STRATEGIES[name]
    if engine not in ("auto", _ENGINE):
        raise InvalidOptionError(f"strategy={strategy!r} runs within the resident engine, not engine={engine!r}")
    if name == _ENGINE:
        return ""
    in_grid = "" if graph.grid is None else f" in a {graph.grid} grid"
    here = f"{graph.name} is on {counted(graph.ranks, 'rank')}{in_grid}, backend {graph.backend}"
    layout = found.layout.replace("p", str(graph.ranks))
    if found.device == "gpu" and graph.backend != "cuda":
        wanted, of = ("GPUs", f"layout={layout!r}") if found.grid else ("one GPU", "ranks=1")
        others = [each.name for each in STRATEGIES.values() if each.device != "gpu" and each.grid == found.grid]
        raise InvalidOptionError(
            f"strategy {name} needs a graph on {wanted}, dbfs.load(..., {of}, backend='cuda'); {here}. "
            f"Strategies for CPU cores: {', '.join(others)}"
        )
    if found.device == "cpu" and graph.backend != "cpu":
        raise InvalidOptionError(
            f"strategy {name} needs a graph on one CPU rank, dbfs.load(..., ranks=1, backend='cpu'); {here}"
        )
    if found.grid and layout not in (graph.layout, f"2d:{graph.grid}"):
        raise InvalidOptionError(f"strategy {name} needs a grid of ranks, dbfs.load(..., layout={layout!r}); {here}")
    if not found.grid and (graph.ranks > 1 or graph.layout != "1d"):
        raise InvalidOptionError(f"strategy {name} needs a graph on one rank, dbfs.load(..., ranks=1); {here}")
    if found.device == "gpu" and graph.exchange != "cuda_ipc" and not (found.grid and graph.ranks == 1):
        raise InvalidOptionError(f"strategy {name} needs exchange='cuda_ipc', not {graph.exchange!r}")
    if sources != 1:
        raise InvalidOptionError(f"strategy {name} takes one source, not {sources}")
    if not plain:
        raise InvalidOptionError(f"strategy {name} takes no max_depth, no targets, and no direction but auto")
    return strategy


MOST_TRAVERSALS = 16
"""Largest number of traversals of one run. A run costs about as much as a few traversals of a small graph."""


def stream(sources: Iterable[int], traverse: Callable[[list[int]], list[BFSResult]]) -> Iterator[BFSResult]:
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
    batch: list[int] = []
    while True:
        batch += itertools.islice(remaining, max(0, size - len(batch)))
        if not batch:
            return
        try:
            results = traverse(batch[:size])
        except NoRoomForLabelsError:
            if size == 1:
                raise
            size = most = size // 2
            continue
        del batch[:size]
        # No reference stays here: the labels are dropped with the caller's last reference to the result.
        results.reverse()
        while results:
            yield results.pop()
        size = min(2 * size, most)
