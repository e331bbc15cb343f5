"""CPU kernels that put labels into the order of a client's vertices."""
