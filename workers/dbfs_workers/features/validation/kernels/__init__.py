"""CPU kernels that check labels."""
