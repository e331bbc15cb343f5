"""How a worker serves clients and the scheduler: the plugin, the turns of a gang, reads of labels."""
