"""The levels of a traversal."""
