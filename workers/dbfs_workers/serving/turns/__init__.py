"""Turns: a run's hold on its gang. Rank 0 leads every run and every update, for the scheduler or for a client.

In: a turn that the scheduler begins, with a run or with a token; and a client's runs over a line. Out: the ranks'
reports, over the way that the run came; and, for the scheduler, notes of a client's runs, some time after they ended.
"""
