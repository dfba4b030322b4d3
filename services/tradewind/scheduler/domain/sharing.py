"""Decides which replica owns which partitions: evenly, and with as few moves as that takes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from tradewind.server.partitions import PARTITIONS


def shares_of(replicas: Iterable[str], partitions: int = PARTITIONS) -> Mapping[str, frozenset[int]]:
    """Return the partitions of each replica; counts differ by one at most, and every caller gets the same answer.

    Rendezvous hashing with bounded loads: of all pairs of a partition and a replica, the heaviest is settled first. So
    when a replica comes or goes, little more than its share moves.
    """
    names = sorted(set(replicas))
    if not names:
        return {}
    least, larger = divmod(partitions, len(names))
    pairs = sorted((_weight(name, partition), name, partition) for name in names for partition in range(partitions))
    owner: dict[int, str] = {}
    load: Counter[str] = Counter()
    for _, name, partition in reversed(pairs):
        if partition in owner or load[name] > least or (load[name] == least and larger == 0):
            continue
        larger -= load[name] == least
        owner[partition] = name
        load[name] += 1
    return {name: frozenset(each for each, holder in owner.items() if holder == name) for name in names}


def _weight(name: str, partition: int) -> bytes:
    return blake2b(f"{name} {partition}".encode(), digest_size=8).digest()
