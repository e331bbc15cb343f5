"""Leases: the short way from a client to a gang. The client sends its runs to rank 0, and not through the scheduler.

In: a lease that the scheduler grants to one client at a time, and the client's runs over a line. Out: the ranks'
reports over that line; and, for the scheduler, notes of the runs, some time after they ended.
"""
