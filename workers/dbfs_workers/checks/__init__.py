"""Checks on workers."""
