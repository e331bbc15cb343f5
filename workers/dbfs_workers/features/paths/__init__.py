"""Searches between two vertices, from both ends."""
