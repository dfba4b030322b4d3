"""The peers' side of the benchmark. These modules run in an environment of their own (see requirements.txt)."""
