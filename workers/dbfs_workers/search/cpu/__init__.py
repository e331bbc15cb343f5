"""The phases of a level on CPU cores: Numba kernels, and the threads that share a rank's work."""
