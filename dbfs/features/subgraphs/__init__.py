"""Parts of a graph: the edges among some vertices, or around some."""
