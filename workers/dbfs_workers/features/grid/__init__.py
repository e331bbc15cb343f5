"""The 2-D partition (Krajecki 2016): blocks of the matrix on a grid of ranks, their levels and messages."""
