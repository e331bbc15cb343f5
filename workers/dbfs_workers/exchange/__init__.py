"""Exchanges: how the ranks of a gang hand each other bins, bitmap slices and counts, level by level."""
