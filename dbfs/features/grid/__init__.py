"""The choice between the 1-D and the 2-D partition."""
