"""A cluster in one thread: the service's own classes on a clock that jumps, from one seed."""
