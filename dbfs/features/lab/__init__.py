"""The client's half of the laboratory. ``dbfs.lab`` is what users import."""
