"""The levels of a traversal on one rank. On the CPU, and on GPUs without peer access, every level runs through here.

In: a rank's partition, a ``TraversalSpec``, and the bins and counts of its peers. Out: labels, and counts by level.

| module | part of a level |
| --- | --- |
| ``loop`` | the resident loop, which runs all levels of a traversal inside one call of the gang; start reading here |
| ``direction`` | the rule by which the loop chooses top-down or bottom-up |
| ``phases`` | expand, filter + partition and contract as single steps, for the taskgraph engine's tasks |
| ``state`` | a traversal's state between those tasks, which refuses a step out of order |
| ``bins``, ``counts`` | what a step hands on: the vertices found for one rank, and the numbers of the level |

The work on a rank's edges is done by the kernels of ``dbfs_workers.backends``, on the arrays of
``dbfs_workers.storage.scratch``. A *crossing* is the barrier at the end of a level, where ranks exchange bins, bitmap
slices and counts (``dbfs_workers.exchange``). On GPUs with peer access ``dbfs_workers.cuda.resident`` runs whole
traversals in one kernel instead.
"""
