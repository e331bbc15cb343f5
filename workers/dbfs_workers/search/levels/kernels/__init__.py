"""CPU kernels that run many levels."""
