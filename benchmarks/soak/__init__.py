"""A stack of real processes under steady load, and a check that its memory does not grow."""
