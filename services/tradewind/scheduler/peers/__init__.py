"""The services that the scheduler calls."""
