"""Updates of living graphs on a worker: the messages, and their handlers.

Import from the modules themselves.
"""
