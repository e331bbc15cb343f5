"""Helpers of the tests, by topic: graphs, oracles, gangs of processes, hosts, stand-ins.

A test module imports from here and from the packages, never from another test module (`test_contracts` holds it).
The Makefile loads `unstable` before conftest.py, hence PYTEST_DONT_REWRITE: this file itself asserts nothing.
"""
