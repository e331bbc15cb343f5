"""CPU kernels that draw edges."""
