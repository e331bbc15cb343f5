"""Living graphs: updates, and what watches a graph."""
