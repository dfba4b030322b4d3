"""Node tasks, plans, components and leases; pure."""
