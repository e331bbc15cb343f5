"""Kernels of the CUDA backend, one header a phase, and the drivers that compile and launch them."""
