"""CPU kernels of the 2-D partition."""
