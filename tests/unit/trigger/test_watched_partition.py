"""How long before its time a partition's receiver asks for the first trigger there."""

from tradewind.trigger.domain.claim import Subscription
from tradewind.trigger.ports.claims import Heads, Survey
from tradewind.trigger.use_cases.watched_partition import WatchedPartition

NOW_MS = 1_000_000


def watched_partition() -> WatchedPartition:
    partition = WatchedPartition(Subscription(0, 1, "s"), longest_lead_ms=500)
    partition.confirmed = True
    return partition


def survey(due_ms: int, lead_ms: int | None) -> Survey:
    return Survey(Heads(due_ms), NOW_MS * 1000, lead_ms)


def lead_ms_of(partition: WatchedPartition, due_ms: int) -> float:
    next_us = partition.next_us()
    assert next_us is not None
    return due_ms - (next_us + partition.time.offset_us) / 1000


def test_lead_of_a_near_trigger_comes_from_the_store() -> None:
    partition = watched_partition()
    partition.apply_survey(survey(NOW_MS + 400, 28), 0, 0)
    assert lead_ms_of(partition, NOW_MS + 400) == 28


def test_trigger_beyond_the_longest_lead_gets_the_longest_lead() -> None:
    partition = watched_partition()
    partition.apply_survey(survey(NOW_MS + 501, 20), 0, 0)
    assert lead_ms_of(partition, NOW_MS + 501) == 500


def test_earlier_trigger_resets_the_lead_to_the_longest() -> None:
    partition = watched_partition()
    partition.apply_survey(survey(NOW_MS + 400, 28), 0, 0)
    partition.expect(Heads(NOW_MS + 300))
    assert lead_ms_of(partition, NOW_MS + 300) == 500


def test_partition_without_a_lead_claims_triggers_when_due() -> None:
    partition = WatchedPartition(Subscription(0, 1, "s"))
    partition.confirmed = True
    partition.apply_survey(survey(NOW_MS + 400, None), 0, 0)
    assert lead_ms_of(partition, NOW_MS + 400) == 0
