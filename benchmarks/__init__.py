"""The benchmark beside its peers: the same workloads on Tradewind, Celery and pydocket, alternately in one run."""
