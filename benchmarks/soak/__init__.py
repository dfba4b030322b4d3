"""A stack of real processes under steady load, and whether its memory stays as it is."""
