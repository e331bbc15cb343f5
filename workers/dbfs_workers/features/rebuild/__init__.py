"""Graphs that come back: the tasks of the ranks."""
