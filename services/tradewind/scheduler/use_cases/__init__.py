"""What the scheduler does, one verb a module."""
