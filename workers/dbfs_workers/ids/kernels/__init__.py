"""CPU kernels that number integers and strings."""
