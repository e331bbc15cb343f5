"""Display: plots, tables, progress bars, HTML in notebooks, and the state of a cluster.

In: graphs, results, level reports, progress of runs and builds. Out: matplotlib axes, tables for the terminal, bars,
HTML and SVG, a ``ClusterState``.
"""
