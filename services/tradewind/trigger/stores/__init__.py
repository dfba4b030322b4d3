"""Where triggers are kept: in memory (the executable specification) and in Redis."""
