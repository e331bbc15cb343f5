"""How a graph lies on ranks."""
