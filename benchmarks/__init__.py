"""Benchmarks: each module measures one thing, if possible next to a comparable program in the same run.

In: a client of a cluster, and what to measure; for benchmarks over many graphs a plan (``plan``, ``configs/bench``).
Out: frozen dataclasses of figures, which ``tables``, ``figures`` and ``saved`` turn into tables, PNG files and JSON.
"""
