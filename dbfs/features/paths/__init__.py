"""Shortest paths between vertices, searched from both ends."""
