"""Lines: plain connections between two processes, without an event loop, for messages that must arrive at once.

In: the address of a worker's door, and a token that the scheduler granted. Out: a ``Line``, over which two threads send
each other frames of bytes.
"""
