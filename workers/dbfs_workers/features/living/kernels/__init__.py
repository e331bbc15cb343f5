"""CPU kernels that change rows on pages, and that repair labels."""
