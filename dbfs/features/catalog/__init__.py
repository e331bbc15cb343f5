"""Catalogs: files that list the graphs of a service."""
