"""When something repeats: grids of planned times, the window they lie in, and what becomes of times that passed.

Pure: every time is given, in whole milliseconds of the epoch, UTC.
"""
