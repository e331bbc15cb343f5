"""What every room of the workers stands on: errors, kernels' compilation, locks, lines between processes, checks of input."""
