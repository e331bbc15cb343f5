"""Saved graphs: written by the ranks, and loaded again."""
