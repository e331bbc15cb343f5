"""The levels of a traversal on one rank. A level runs in ``loop`` (resident engine) or ``phases`` (taskgraph engine).

In: a rank's edges, a ``TraversalSpec``, and the bins and counts of the peers. Out: labels, and counts by level.

| module | content |
| --- | --- |
| ``loop`` | the resident loop: all levels of a traversal in one call of the gang. Start reading here |
| ``direction`` | the rule by which the loop chooses top-down or bottom-up levels |
| ``phases`` | expand, filter + partition and contract one by one, as the taskgraph engine's tasks call them |
| ``state`` | a traversal's state between those tasks, which refuses a phase out of order |
| ``bins``, ``counts`` | the results of those phases: vertices for one owner, and the numbers of a level |

The kernels are in ``dbfs_workers.backends``, and the arrays that they change in ``dbfs_workers.storage.scratch``.
A *crossing* is the barrier at the end of a level, where the ranks exchange bins, bitmap slices and counts
(``dbfs_workers.exchange``).

One case runs elsewhere: in a gang on GPUs that map each other's memory, ``dbfs_workers.cuda.resident`` runs all levels
of a traversal in one kernel.
"""
