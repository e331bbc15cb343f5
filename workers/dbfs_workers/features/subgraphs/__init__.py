"""The rows of a subgraph, read from the ranks."""
