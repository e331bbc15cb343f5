"""Graph and BFSResult."""
