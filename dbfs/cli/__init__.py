"""The command line: ``dbfs COMMAND``, which Dask's entry point also offers as ``dask bfs COMMAND``.

In: options and arguments; ``dbfs --help`` lists the commands, one module each. Out: a table or JSON on stdout, an exit
code. To keep ``dbfs --help`` fast, a command imports slow packages (Numba, pandas, pyarrow) only when it runs.
"""

from typing import Any

import click

from dbfs.base.build import build
from dbfs.cli.bench import bench
from dbfs.cli.doctor import doctor, warm_up
from dbfs.cli.estimate import estimate
from dbfs.cli.files import convert, generate
from dbfs.cli.graph500 import graph500
from dbfs.cli.graphs import cancel, delete, graphs, insert, load, runs, save, unload
from dbfs.cli.lab import lab
from dbfs.cli.measure import measure
from dbfs.cli.path import path
from dbfs.cli.run import run
from dbfs.errors import DbfsError, ValidationError

EXIT_FAILED, EXIT_INPUT, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 3, 130


class DbfsGroup(click.Group):
    """A group that turns typed errors of its commands, and Ctrl-C, into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raise ``ClickException`` for a ``DbfsError`` and for Ctrl-C."""
        try:
            return super().invoke(ctx)
        except DbfsError as error:
            raise _failure(str(error), exit_code(error)) from error
        except KeyboardInterrupt as interrupt:
            raise _failure("interrupted", EXIT_INTERRUPTED) from interrupt


def _failure(words: str, code: int) -> click.ClickException:
    failure = click.ClickException(words)
    failure.exit_code = code  # type: ignore[misc]  # click reads it off the instance
    return failure


def exit_code(error: DbfsError) -> int:
    """Return the exit code for an error, as ``dbfs --help`` lists them."""
    if isinstance(error, ValidationError):
        return EXIT_INVALID
    if isinstance(error, ValueError | TypeError | LookupError | FileNotFoundError | MemoryError):
        return EXIT_INPUT
    return EXIT_FAILED


@click.group(cls=DbfsGroup, name="bfs", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(build(), prog_name="dbfs")
def main() -> None:
    """Distributed breadth-first search on Dask workers.

    Example: dbfs run kronecker:scale=16 --source 1 --validate

    Commands that need a running cluster take its address from --scheduler or DASK_SCHEDULER_ADDRESS. Certificates for
    tls:// addresses come from Dask's configuration. With --json a command prints only JSON on stdout.

    \b
    Exit codes:
      0  success
      1  failure: a lost worker, a passed deadline, a cancelled run, no workers
      2  wrong input: an option, a name, a vertex, a file, a graph too large
      3  a result failed validation
      130  interrupted by Ctrl-C
    """


_ON_CLUSTERS = (load, graphs, insert, delete, save, unload, runs, cancel)
for _command in (run, path, measure, *_ON_CLUSTERS, estimate, generate, convert, bench, graph500, lab, doctor, warm_up):
    main.add_command(_command)
