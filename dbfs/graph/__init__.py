"""Graphs on a cluster: ``load`` and ``open`` return a ``Graph``, whose searches return a ``BFSResult``.

In: an edge list, options and a client; vertex ids. Out: graphs, results, counts and vertices. Labels stay on the
workers until a caller reads them.

This package, ``dbfs.features.batches``, ``dbfs.features.validation`` and ``dbfs.display`` import each other, because the methods of
``Graph`` and ``BFSResult`` call functions there that take a graph or a result. This is the only circle of imports in
dbfs. Where an import at the top of a file would fail, it stands inside the function or under ``TYPE_CHECKING``.
"""
