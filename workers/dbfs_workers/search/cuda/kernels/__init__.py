"""CUDA sources of the phases of a level, and of the resident kernel."""
