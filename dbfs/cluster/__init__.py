"""Clusters, clients and gangs."""
