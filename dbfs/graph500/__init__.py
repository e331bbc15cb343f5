"""The Graph500 benchmark."""
