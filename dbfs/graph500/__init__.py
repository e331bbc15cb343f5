"""The Graph500 benchmark.

In: a scale and a client. Out: a ``Graph500Result`` with times, rates and the benchmark's own output, after every search
was validated.
"""
