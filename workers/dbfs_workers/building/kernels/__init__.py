"""CPU kernels that bin, sort and count edges, and that read pairs of integers."""
