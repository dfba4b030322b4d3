"""The whole engine in one process under a clock of its own; see `simulate`."""
