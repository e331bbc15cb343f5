"""Tables of edges: which columns hold an edge's ends, what may be an id, and tables in the client's memory.

In comes anything with columns (a DataFrame, an Arrow stream, a dask DataFrame), a graph of another library, or pairs.
Out goes an ``EdgeList``. The readers of files of tables use ``ends`` and ``ids`` too.
"""
