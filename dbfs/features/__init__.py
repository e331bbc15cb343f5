"""Features of the client and the scheduler: each folder can be taken away."""
