"""Edge lists: lazy descriptions of edges, from files, generators or a caller's arrays, and writers of graph files.

In come a path, a generator's spec, or arrays (``resolve`` accepts any of them). Out goes an ``EdgeList``, which
``dbfs.building`` cuts into pieces that workers read; or, from a writer, a file.
"""
