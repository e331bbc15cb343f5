"""The ids of callers: their types, the table of a rank, codes while they are numbered, and labels by id."""
