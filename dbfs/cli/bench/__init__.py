"""``dbfs bench``: benchmarks of this machine.

In: a command's options; ``plans`` also takes a plan's file, ``figures`` and ``scale-model`` take saved results.
``dbfs.bench`` measures.
Out: tables or JSON on stdout; with ``--out``, files.
"""

import click

from dbfs.cli.bench.bins import bins
from dbfs.cli.bench.build import build
from dbfs.cli.bench.engine import calls, gang, kernels, levels
from dbfs.cli.bench.files import files
from dbfs.cli.bench.gpu import gpu, memory
from dbfs.cli.bench.hosts import hosts
from dbfs.cli.bench.lab import lab
from dbfs.cli.bench.layouts import layouts
from dbfs.cli.bench.networkx import networkx
from dbfs.cli.bench.plans import corpus, figures, scaling
from dbfs.cli.bench.scale_model import scale_model
from dbfs.cli.bench.updates import updates


@click.group()
def bench() -> None:
    """Measure this machine.

    Example: dbfs bench levels
    """


for _command in (
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
):
    bench.add_command(_command)
