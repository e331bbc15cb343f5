"""What every room of the workers stands on: errors, the compilation of kernels, lines between processes."""
