"""The core: breadth-first search on one rank, from the partition to the loop of levels. The core knows no feature."""
