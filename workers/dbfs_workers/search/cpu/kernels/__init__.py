"""CPU kernels of the phases of a level."""
