"""The command line: ``dbfs COMMAND``.

Exit codes: 0, done; 1, the run failed (a worker lost, a deadline passed, no workers); 2, the input is wrong (an option,
a vertex, a file); 3, a result did not validate.
"""

from typing import Any

import click

from dbfs.cli.bench import bench
from dbfs.cli.doctor import doctor
from dbfs.cli.run import run
from dbfs.errors import DbfsError, ValidationError

EXIT_FAILED, EXIT_INPUT, EXIT_INVALID = 1, 2, 3


class Failure(click.ClickException):
    """A typed error as click shows it: one line on stderr and an exit code."""

    def __init__(self, error: DbfsError) -> None:
        super().__init__(str(error))
        self.exit_code = exit_code(error)  # type: ignore[misc]  # click reads it off the instance


class DbfsGroup(click.Group):
    """A group whose commands report typed errors as ``Failure``."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DbfsError as error:
            raise Failure(error) from error


def exit_code(error: DbfsError) -> int:
    """The exit code of an error."""
    if isinstance(error, ValidationError):
        return EXIT_INVALID
    if isinstance(error, ValueError | TypeError | FileNotFoundError | MemoryError):
        return EXIT_INPUT
    return EXIT_FAILED


@click.group(cls=DbfsGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dbfs")
def main() -> None:
    """Distributed breadth-first search on Dask workers.

    Example: dbfs run kronecker:scale=16 --source 1 --validate
    """


main.add_command(run)
main.add_command(bench)
main.add_command(doctor)
