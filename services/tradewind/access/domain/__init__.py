"""Users and sessions as the access service knows them, without any I/O."""
