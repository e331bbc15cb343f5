"""Building: from an edge list to one partition on each rank."""
