"""Node tasks, plans, components and leases, without any I/O."""
