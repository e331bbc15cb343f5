"""What tests share: graphs, independent oracles, gangs in threads, hosts, stand-ins. Tests import from here only."""
