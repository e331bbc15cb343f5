"""Benchmarks: each module measures one thing, if possible next to a comparable program in the same run.

In: a command's options, and for benchmarks over many graphs a plan (``plan``, ``configs/bench``). Out: rows of figures,
which ``runner`` turns into tables and JSON, and ``figures`` into pictures.
"""

COMMANDS = {
    "batch": "batch",
    "bins": "bins",
    "build": "build",
    "calls": "calls",
    "chaos": "chaos",
    "corpus": "plans",
    "directions": "directions",
    "figures": "plans",
    "files": "files",
    "gang": "calls",
    "gpu": "gpu",
    "hosts": "hosts",
    "kernels": "kernels",
    "lab": "lab",
    "lab-updates": "lab_updates",
    "layouts": "layouts",
    "levels": "levels",
    "memory": "memory",
    "networkx": "networkx",
    "paths": "paths",
    "peers": "peers",
    "scale-model": "scale_model",
    "scaling": "plans",
    "sssp": "sssp",
    "updates": "updates",
    "views": "views",
}
"""The module of each command of ``dbfs bench``, which has a function of the command's name."""
