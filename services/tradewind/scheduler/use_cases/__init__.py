"""What the scheduler does, one verb per module."""
