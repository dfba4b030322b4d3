"""The whole engine in one process under a virtual clock; see `simulate`."""
