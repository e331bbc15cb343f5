"""Benchmarks: each measures one thing, next to something it can be compared with in the same run."""
