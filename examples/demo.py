"""A demonstration on one machine: a Kronecker graph striped over four workers, traversed from eight sources.

``make demo`` runs this script. Every result is validated on the workers before the table is printed.
"""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import dbfs
from dbfs.display import tables

WORKERS, SCALE, SOURCES = 4, 16, 8


def main() -> None:
    """Connect, build, traverse and validate, and print the results."""
    console = Console()
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting workers", total=SOURCES + 2)
        # Within this process, they start at once. Without processes=False each would be a process of its own.
        with dbfs.connect(n_workers=WORKERS, processes=False) as client:
            progress.update(task, advance=1, description="compiling kernels, building the graph")
            graph = dbfs.load(dbfs.kronecker(scale=SCALE), client=client)
            progress.update(task, advance=1)
            results = []
            for source in graph.sample_sources(SOURCES):
                progress.update(task, description=f"traversing from {source}, validating")
                results.append(graph.bfs(source, predecessors=True, validate=True))
                progress.update(task, advance=1)
            progress.update(task, description="done")
            farthest = max(results, key=lambda result: result.depth)
            vertex = int(farthest.distances().argmax())
            path = farthest.path_to(vertex)
            for result in results:
                result.release()
            graph.unload()
    console.print(tables.describe(graph), highlight=False, soft_wrap=True)
    console.print(tables.results_table(results, validated=True))
    console.print(tables.levels_table(farthest))
    console.print(f"a longest shortest path from {path[0]}: {' -> '.join(map(str, path))}", highlight=False)


if __name__ == "__main__":
    main()
