"""What to do when a process may not open as many files as it needs."""

ALLOW_MORE = "allow more of them, as in: ulimit -n 1024"
TOO_MANY_OPEN_FILES = f"too many open files: {ALLOW_MORE}"
