"""The levels of a traversal on one rank. A level runs in ``loop`` (resident engine) or ``phases`` (taskgraph engine).

In: a rank's edges, a ``TraversalSpec``, and the bins and counts of the peers. Out: labels, and counts by level.

| module | content |
| --- | --- |
| ``loop`` | the loop: all levels of a traversal in one call of the gang. Start reading here |
| ``state`` | the state of a traversal, the row of a level, and what the loop decides by them |
| ``level_table`` | the rows of the levels |
| ``rank_levels`` | which steppers a rank has |
| ``stepper`` | the steppers by which the host directs each level |
| ``top_down_levels``, ``led_levels``, ``queued_levels`` | the steppers that run many levels |
| ``phases`` | expand, filter + partition and contract one by one, as the taskgraph engine's tasks call them |
| ``task_state`` | a rank's arrays between those tasks, which refuse a phase out of order |
| ``bins``, ``counts`` | the results of those phases: vertices for one owner, and the numbers of a level |

The kernels are in ``search.backends``, and the arrays that they change in ``search.partition.scratch``.
A *crossing* is the barrier at the end of a level, where the ranks exchange bins, bitmap slices and counts
(``dbfs_workers.search.exchange``).

One case runs elsewhere: in a gang on GPUs that map each other's memory, ``search.cuda.resident`` runs all levels
of a traversal in one kernel.
"""
