"""Benchmarks: each module measures one thing, next to something comparable in the same run where there is such a thing.

In: a client of a cluster, and what to measure; for benchmarks over many graphs a plan (``plan``, ``configs/bench``).
Out: frozen dataclasses of figures, which ``tables``, ``figures`` and ``saved`` turn into tables, PNG files and JSON.
"""
