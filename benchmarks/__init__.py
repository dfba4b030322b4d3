"""The benchmark against peers: the same workloads on Tradewind, Celery and pydocket, taking turns in one run."""
