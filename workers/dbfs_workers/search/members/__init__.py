"""A worker's part in one gang: one ``Member`` for each graph that the worker has a rank of.

In: the calls of the worker plugin: form, traverse, abort, release. Each member runs them one by one in its own thread.
Out: each rank's labels, kept on the worker, and the counts of its levels; or the typed error that ended the run.
"""
