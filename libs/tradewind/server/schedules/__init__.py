"""When something begins: grids of planned times and their window, what becomes of times that passed, filters of events.

Pure: every time is given, in whole milliseconds of the epoch, UTC.
"""
