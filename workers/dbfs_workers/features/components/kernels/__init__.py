"""CPU kernels of a rank's forest."""
