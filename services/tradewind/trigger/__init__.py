"""The trigger service: everything that fires at a time."""
