"""Validation of labels."""
