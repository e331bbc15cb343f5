"""CPU kernels of the laboratory's baselines."""
