"""Graphs that come back: what a lost worker had is built again of the graph's source, or of what was saved."""
