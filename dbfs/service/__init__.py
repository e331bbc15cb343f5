"""The service on the scheduler, and the way to it."""
