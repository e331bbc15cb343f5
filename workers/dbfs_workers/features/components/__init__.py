"""Connected components: each rank's forest, merged into one."""
