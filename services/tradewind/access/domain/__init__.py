"""What the access service knows of users and sessions, without any I/O."""
