"""Connected components of a graph."""
