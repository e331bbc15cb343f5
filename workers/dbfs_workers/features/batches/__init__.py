"""Batches: many traversals in one sweep, a bit each, and the sweeps over shortest paths that stand on them."""
