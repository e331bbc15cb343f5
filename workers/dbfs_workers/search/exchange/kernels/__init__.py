"""CPU kernels by which ranks wait for each other, and by which an envoy sends frames between hosts."""
