"""Small faults to plant in the product, each with the tests that have to fail: see ``tests.support.planting``."""
