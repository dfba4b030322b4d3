"""Divides work among scripts, each of which may touch one partition and a bounded number of triggers."""

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def chunks_by_partition(items: Iterable[tuple[int, Item]], size: int) -> list[tuple[int, list[Item]]]:
    """Return the items of each partition in chunks of up to `size`, each with its partition."""
    by_partition: dict[int, list[Item]] = {}
    for partition, item in items:
        by_partition.setdefault(partition, []).append(item)
    return [
        (partition, of_one[start : start + size])
        for partition, of_one in by_partition.items()
        for start in range(0, len(of_one), size)
    ]
