"""CPU kernels of a batch's levels, and of the sweeps over shortest paths."""
