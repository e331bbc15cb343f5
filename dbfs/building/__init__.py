"""Builds of graphs: the edge lists of ``dbfs.edges`` become one partition on each rank of a gang.

In come an EdgeList, a Gang and BuildOptions. Out go futures of the partitions (``BuiltGraph``), on the workers' CPUs or
GPUs, and estimates of the bytes that a graph takes.
"""
