"""What every room of the client stands on: records, progress, units, checks of calls and numbers."""
