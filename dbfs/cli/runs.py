"""``dbfs runs`` and ``cancel``: the runs of a running cluster."""

import click

import dbfs
from dbfs.cli.common import cluster_option, connect, json_option, print_json, print_results
from dbfs.errors import InvalidOptionError, RunNotFoundError
from dbfs.records import RunStatus
from dbfs.units import format_seconds


@click.command()
@cluster_option
@json_option
def runs(scheduler: str, as_json: bool) -> None:
    """List the waiting and running runs of a cluster.

    Example: dbfs runs --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        found = [run.status for run in dbfs.runs(client=client)]
    columns = ("run", "graph", "traversal", "state", "level", "direction", "frontier", "reached", "for")
    print_results(f"Runs at {scheduler}", columns, [_row(status) for status in found], found, as_json=as_json)


def _row(status: RunStatus) -> tuple[str, ...]:
    at = status.progress
    state, seconds = "running" if status.running else "waiting", format_seconds(status.seconds)
    if at is None:
        what = status.update or f"of {status.traversals}"
        return (status.run_id[:8], status.graph, what, state, "", "", "", "", seconds)
    traversal = f"{min(at.finished + 1, at.traversals)} of {at.traversals}"
    where = (f"{at.level:,}", at.direction, f"{at.frontier:,}", f"{at.reached:,}")
    return (status.run_id[:8], status.graph, traversal, state, *where, seconds)


@click.command()
@click.argument("run_id")
@cluster_option
@json_option
def cancel(run_id: str, scheduler: str, as_json: bool) -> None:
    """End a run before its next level. RUN_ID is the id that dbfs runs lists, or the beginning of an id.

    The caller that waits for the run gets RunCancelledError. The command is a client of its own: it may cancel the runs
    of other clients only if dbfs.service.anyone-may-stop is true in the scheduler's configuration.

    Example: dbfs cancel 3f2a --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        found = [run for run in dbfs.runs(client=client) if run.status.run_id.startswith(run_id)]
        if not found:
            raise RunNotFoundError(f"no run that begins with {run_id} is waiting or running; dbfs runs lists the runs")
        if len(found) > 1:
            raise InvalidOptionError(f"{len(found)} runs have ids that begin with {run_id}; give more characters")
        found[0].cancel()
    cancelled = found[0].status.run_id
    if as_json:
        print_json({"run_id": cancelled})
    else:
        click.echo(f"{cancelled}: cancelled")
