"""Shortest paths by a column of weights."""
