"""CUDA kernels on a CPU, for tests of kernels' logic where no GPU is: see ``cuda_on_cpu.h``."""
