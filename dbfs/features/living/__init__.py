"""Living graphs: batches of changes, and what watches a graph."""
