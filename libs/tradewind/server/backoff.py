"""How long to wait before what has failed is tried again."""

import random


def backoff_s(failures: int, least_s: float, most_s: float) -> float:
    """Return a random half to the whole of `least_s`, doubled with each failure, of `most_s` at the most."""
    return random.uniform(0.5, 1.0) * min(most_s, least_s * 2.0 ** min(failures, 10))
