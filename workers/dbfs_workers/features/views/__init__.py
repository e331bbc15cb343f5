"""Attributes of edges on the ranks, and the views that filters make of a graph."""
