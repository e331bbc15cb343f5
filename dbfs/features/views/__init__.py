"""Attributes of edges, and views: graphs of the edges that pass a filter."""
