"""Faults that are planted into a copy of the project, and the tests that have to catch them: ``make planted``."""
