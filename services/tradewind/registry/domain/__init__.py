"""Workers and node types as the registry knows them, without any I/O."""
