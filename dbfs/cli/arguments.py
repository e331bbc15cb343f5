"""The argument GRAPH of several commands: its completion in the shell."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from dbfs.edges.generate.corpus import CORPUS, TODLING
from dbfs.edges.generate.specs import GENERATORS

_CORPUS = "corpus"


class GraphType(click.ParamType[str]):
    """A file or a generator's spec. The shell completes files, names of generators, and ``corpus:NAME``."""

    name = "graph"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the specs that begin with ``incomplete``, after the order to complete files."""
        names = [f"{_CORPUS}:{name}" for name in _corpus_names()] if incomplete.startswith(f"{_CORPUS}:") else []
        specs = [f"{generator.name}:" for generator in GENERATORS] + names
        found = [CompletionItem(spec) for spec in specs if spec.startswith(incomplete) and spec != incomplete]
        # The order comes first, because bash's completion forgets the items before it.
        return [CompletionItem(incomplete, type="file"), *found]


class GraphCommand(click.Command):
    """A command with the argument ``graph``, which bash cuts at its colon."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name after ``corpus:``, which bash hands over as the words ``corpus``, ``:`` and the rest."""
        graph: Any = ctx.params.get("graph") or ctx.params.get("spec")
        after_colon = incomplete == ":" or ctx.args[-1:] == [":"]
        if graph == _CORPUS and after_colon:
            return [CompletionItem(name) for name in _corpus_names() if name.startswith(incomplete.lstrip(":"))]
        return super().shell_complete(ctx, incomplete)


def _corpus_names() -> list[str]:
    return [graph.name for graph in (*CORPUS, *TODLING)]
