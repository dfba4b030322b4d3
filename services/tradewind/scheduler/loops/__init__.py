"""What the scheduler does by itself."""
