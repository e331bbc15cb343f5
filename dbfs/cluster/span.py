"""The span of dbfs's tasks: Dask keeps metrics of tasks by span.

Dask opens a new span whenever an idle cluster gets tasks without one. The scheduler keeps every span and its groups of
tasks for ever, and workers keep the metrics of every span. Therefore all tasks of dbfs have one span, and the scheduler
forgets the groups of that span that are over.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import dask
import distributed

SPAN: Final = "dbfs"
"""Name and id of the span."""

# Groups that are over may stay until there are so many more than groups in use: then looking for them costs little.
_GROUPS_OVER: Final = 100


def in_span() -> AbstractContextManager[Any]:
    """Return a context for submitting tasks. If the caller opened a span of Dask's, the tasks belong to that span."""
    own: AbstractContextManager[Any] = dask.annotate(span={"name": (SPAN,), "ids": (SPAN,)})
    return nullcontext() if "span" in dask.get_annotations() else own


def tidy(scheduler: distributed.Scheduler, tasks: Iterable[Any], annotations: Mapping[str, Any]) -> None:
    """Keep what the scheduler records of dbfs's tasks bounded.

    Args:
        scheduler: the scheduler, which has just taken tasks of any client.
        tasks: keys of these tasks, and of those that they depend on.
        annotations: annotations of these tasks.
    """
    spans = scheduler.extensions.get("spans")
    own = None if spans is None else spans.spans.get(SPAN)
    if own is None or not any(span["ids"] == (SPAN,) for span in annotations.get("span", {}).values()):
        return
    # Scattered data has no annotations, so Dask opens a span for it. No worker reports metrics of such a span, because
    # its tasks do not run.
    touched = [scheduler.tasks[key] for key in tasks]
    data = {task.group for task in touched if task.run_spec is None and not task.group.start}
    for other in {spans.spans[group.span_id] for group in data} - {own}:
        if other.name == ("default",) and other.groups <= data:
            for group in other.groups:
                group.span_id = SPAN
            own.groups |= other.groups
            del spans.spans[other.id]
            by_name, by_tag = spans.spans_search_by_name[other.name], spans.spans_search_by_tag[other.name[0]]
            for listed in (spans.root_spans, by_name, by_tag):
                listed.remove(other)
    if len(own.groups) > len(scheduler.task_groups) + _GROUPS_OVER:
        own.groups.intersection_update(scheduler.task_groups.values())
        # One entry for each submission, all alike.
        own.metadata["collections"].clear()
