"""Graphs on a cluster: ``load`` and ``open`` return a ``Graph``, whose searches return a ``BFSResult``.

In: an edge list, options and a client; vertex ids. Out: graphs, results, counts and vertices. Labels stay on the
workers until a caller reads them.

The classes here are the core's parts: traversals, ids, labels and degrees. Features subclass these in their own rooms,
and ``dbfs.assembly`` puts the public classes together.
"""
