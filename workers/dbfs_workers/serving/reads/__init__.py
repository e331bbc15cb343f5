"""How a client reads the labels that a rank keeps: by messages of its own, past the scheduler.

``messages`` has the messages, ``server`` answers them on a worker. Ranks on the client's host write labels into the
client's ``label_buffer``; other ranks send them.
"""
