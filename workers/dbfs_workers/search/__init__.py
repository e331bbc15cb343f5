"""The core: breadth-first search on one rank, from its partition to the loop of its levels. The core knows no feature."""
