"""A worker's part in a gang."""
