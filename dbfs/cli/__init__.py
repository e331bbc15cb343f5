"""The command line: ``dbfs COMMAND``, which Dask's entry point also offers as ``dask bfs COMMAND``.

In: options and arguments; ``dbfs --help`` lists the commands, one module each. Out: a table or JSON on stdout, an exit
code. To keep ``dbfs --help`` fast, a command imports slow packages (Numba, pandas, pyarrow) only when it runs.
"""

from typing import Any

import click

from dbfs.cli.bench import bench
from dbfs.cli.doctor import doctor, warm_up
from dbfs.cli.estimate import estimate
from dbfs.cli.files import convert, generate
from dbfs.cli.graph500 import graph500
from dbfs.cli.graphs import cancel, delete, graphs, insert, load, runs, save, unload
from dbfs.cli.lab import lab
from dbfs.cli.run import run
from dbfs.errors import DbfsError, ValidationError

EXIT_FAILED, EXIT_INPUT, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 3, 130


class Failure(click.ClickException):
    """A typed error in click's form: one line on stderr and an exit code."""

    def __init__(self, error: DbfsError) -> None:
        super().__init__(str(error))
        self.exit_code = exit_code(error)  # type: ignore[misc]  # click reads it off the instance


class Interrupted(click.ClickException):
    """Ctrl-C in click's form: one line on stderr and the exit code that shells give an interrupted command."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self) -> None:
        super().__init__("interrupted")


class DbfsGroup(click.Group):
    """A group that turns the typed errors of its commands into ``Failure``, and Ctrl-C into ``Interrupted``."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            Failure: the command raised a ``DbfsError``.
            Interrupted: the user pressed Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except DbfsError as error:
            raise Failure(error) from error
        except KeyboardInterrupt as interrupt:
            raise Interrupted from interrupt


def exit_code(error: DbfsError) -> int:
    """Return the exit code for an error, as ``dbfs --help`` lists them."""
    if isinstance(error, ValidationError):
        return EXIT_INVALID
    if isinstance(error, ValueError | TypeError | LookupError | FileNotFoundError | MemoryError):
        return EXIT_INPUT
    return EXIT_FAILED


@click.group(cls=DbfsGroup, name="bfs", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dbfs")
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


main.add_command(run)
main.add_command(load)
main.add_command(graphs)
main.add_command(insert)
main.add_command(delete)
main.add_command(save)
main.add_command(unload)
main.add_command(runs)
main.add_command(cancel)
main.add_command(estimate)
main.add_command(generate)
main.add_command(convert)
main.add_command(bench)
main.add_command(graph500)
main.add_command(lab)
main.add_command(doctor)
main.add_command(warm_up)
