"""What the registry knows of workers and node types, without any I/O."""
