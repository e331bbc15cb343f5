"""``dbfs bench``: benchmarks of this machine.

In: a command's options; ``plans`` also takes a plan's file, ``figures`` and ``scale-model`` take saved results.
The modules beside this folder measure.
Out: tables or JSON on stdout; with ``--out``, files.
"""

import click

from benchmarks.cli.bins import bins
from benchmarks.cli.build import build
from benchmarks.cli.engine import calls, gang, kernels, levels
from benchmarks.cli.files import files
from benchmarks.cli.gpu import gpu, memory
from benchmarks.cli.hosts import hosts
from benchmarks.cli.lab import lab
from benchmarks.cli.layouts import layouts
from benchmarks.cli.networkx import networkx
from benchmarks.cli.plans import corpus, figures, scaling
from benchmarks.cli.scale_model import scale_model
from benchmarks.cli.updates import updates

bench = click.Group(
    commands=[
        calls,
        gang,
        levels,
        bins,
        hosts,
        kernels,
        build,
        files,
        updates,
        networkx,
        layouts,
        lab,
        scale_model,
        gpu,
        memory,
        corpus,
        scaling,
        figures,
    ]
)
"""The commands; ``dbfs/cli/bench.py`` has the group's help."""
