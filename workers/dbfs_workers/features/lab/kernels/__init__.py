"""Kernels of the laboratory: a CUDA source each strategy, and the baseline on one CPU core."""
