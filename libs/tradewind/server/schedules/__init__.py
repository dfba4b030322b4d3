"""When something begins: grids of planned times and their window, catching up on missed times, and event filters.

Pure: every time is passed in, in whole milliseconds since the epoch, UTC.
"""
