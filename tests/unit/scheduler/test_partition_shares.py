"""How replicas share partitions."""

from itertools import pairwise

import pytest

from tradewind.scheduler.domain.sharing import shares_of

NAMES = [f"scheduler-{at}" for at in range(20)]


@pytest.mark.parametrize("count", range(1, 21))
def test_shares_are_even_and_disjoint_and_cover_all_partitions(count: int) -> None:
    shares = shares_of(NAMES[:count])
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(each for share in shares.values() for each in share) == list(range(16))


def test_shares_ignore_order_and_repetition_of_names() -> None:
    assert shares_of(["a", "b", "c", "a"]) == shares_of(["c", "b", "a"])


def test_no_replicas_have_no_shares() -> None:
    assert shares_of([]) == {}


def test_additional_replica_moves_little_more_than_its_share() -> None:
    for fewer, more in pairwise(range(1, 9)):
        before, after = shares_of(NAMES[:fewer], 960), shares_of(NAMES[:more], 960)
        moved = sum(len(before[name] - after[name]) for name in before)
        assert moved <= 1.5 * 960 / more
