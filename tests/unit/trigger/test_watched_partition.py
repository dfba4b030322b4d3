"""How long before its time a partition's receiver asks for the first trigger there."""

from tradewind.trigger.domain.claim import Subscription
from tradewind.trigger.ports import Heads, Survey
from tradewind.trigger.use_cases.watched_partition import WatchedPartition

NOW_MS = 1_000_000


def watched() -> WatchedPartition:
    partition = WatchedPartition(Subscription(0, 1, "s"), longest_lead_ms=500)
    partition.confirmed = True
    return partition


def seen(due_ms: int, lead_ms: int | None) -> Survey:
    return Survey(Heads(due_ms), NOW_MS * 1000, lead_ms)


def ahead_ms(partition: WatchedPartition, due_ms: int) -> float:
    next_us = partition.next_us()
    assert next_us is not None
    return due_ms - (next_us + partition.time.offset_us) / 1000


def test_the_lead_of_what_is_near_is_what_the_store_counted() -> None:
    partition = watched()
    partition.surveyed(seen(NOW_MS + 400, 28), 0, 0)
    assert ahead_ms(partition, NOW_MS + 400) == 28


def test_what_is_further_off_than_the_longest_lead_was_not_counted_yet() -> None:
    partition = watched()
    partition.surveyed(seen(NOW_MS + 501, 20), 0, 0)
    assert ahead_ms(partition, NOW_MS + 501) == 500


def test_something_earlier_is_counted_anew() -> None:
    partition = watched()
    partition.surveyed(seen(NOW_MS + 400, 28), 0, 0)
    partition.expect(Heads(NOW_MS + 300))
    assert ahead_ms(partition, NOW_MS + 300) == 500


def test_without_a_lead_everything_is_claimed_when_it_is_due() -> None:
    partition = WatchedPartition(Subscription(0, 1, "s"))
    partition.confirmed = True
    partition.surveyed(seen(NOW_MS + 400, None), 0, 0)
    assert ahead_ms(partition, NOW_MS + 400) == 0
