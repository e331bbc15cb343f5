"""Shortest paths by a column of weights: see ``levels``."""
