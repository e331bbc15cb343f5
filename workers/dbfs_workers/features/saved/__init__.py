"""Saved graphs: a folder of Arrow files that the ranks wrote, and a manifest that makes them a graph.

A folder has a file of each rank's partition, and where the graph has them files of the kept input edges, of the degree
order and of the ids. Each file is an Arrow IPC file of one or several record batches. The manifest says where the
arrays lie in the files, so that a rank maps or copies its file and takes the arrays as they are, without a parser. The
manifest also has checksums of all files, block by block.

The manifest is written last, and replaced in one step. Until then the folder has no graph, or still the one before:
the names of files have a token of the save, so that a new graph never writes into the files of an older one, which
workers may have mapped.

Clients may save to one folder at once: the last one wins.

- ``folder``: the folder, on a disk or in any store that fsspec opens.
- ``manifest``: the manifest's fields, its JSON, and the checks of both.
- ``saves``: how a save takes the place of another, and how what dead saves leave goes.
- ``blocks``: reads of files, checked against their checksums.
- ``writing``: arrays and Arrow columns into files.
- ``parts``: partitions, kept edges and degree orders out of files, checked so that no kernel meets a wrong index.
"""
