"""CPU kernels over the rows of a partition, and over labels."""
