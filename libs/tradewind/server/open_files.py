"""What to do when a process may not open as many files as it needs."""

TOO_MANY_OPEN_FILES = "too many open files: allow more of them, as in: ulimit -n 1024"
