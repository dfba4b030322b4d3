"""What a receiver holds, and how much more it may get."""

from typing import Any

from tradewind.trigger.domain.claim import DueTrigger, Token
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.use_cases.held_claims import HeldClaims, token_of


def due(id: str, attempt: int = 1, deadline_ms: int = 30) -> DueTrigger:
    trigger = Trigger(id, "flow", Schedule.once(0), "", 0, TriggerStatus.CLAIMED, 0, 0, "", 1, 0)
    return DueTrigger(trigger, f"3:{id}:{attempt}:n", deadline_ms, 0)


def test_held_claim_uses_a_credit_until_dropped() -> None:
    held = HeldClaims(credits=2)
    a, b = due("a"), due("b")
    held.add([a, b], offset_us=0)

    assert held.room(now_us=0) == 0
    held.drop(token_of(a))
    held.drop(token_of(a))
    assert held.room(now_us=0) == 1


def test_new_claim_of_a_trigger_replaces_its_previous_claim() -> None:
    held = HeldClaims(credits=2)
    held.add([due("a"), due("b")], offset_us=0)
    held.add([due("a", attempt=2)], offset_us=0)

    assert sorted(token.text for token in held.pop()) == ["3:a:2:n", "3:b:1:n"]


def test_lapsed_claim_uses_no_credit() -> None:
    held = HeldClaims(credits=1)
    held.add([due("a", deadline_ms=30)], offset_us=5000)

    assert held.next_look_us() == 25_000
    assert held.room(now_us=24_999) == 0
    assert held.room(now_us=25_000) == 1


def test_extension_moves_the_lapse() -> None:
    held = HeldClaims(credits=1)
    a = due("a")
    held.add([a], offset_us=0)

    held.extend(token_of(a), 90_000)
    held.extend(token_of(due("b")), 10)

    assert held.room(now_us=89_999) == 0
    assert held.next_look_us() == 90_000
    held.extend(token_of(a), 70_000)
    assert held.next_look_us() == 70_000
    assert held.room(now_us=70_000) == 1


class Deadlines(dict[Token, int]):
    """Counts how often all deadlines are looked at."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()

    def values(self) -> Any:
        self.looks += 1
        return super().values()


def test_full_receiver_looks_at_its_claims_only_when_one_may_have_lapsed() -> None:
    """It asks for room after each answer, and may hold 10 000 claims."""
    held = HeldClaims(credits=100)
    held._deadlines = deadlines = Deadlines()
    held.add([due(f"t{number}", deadline_ms=1000 + number) for number in range(100)], offset_us=0)
    for number in range(100):
        assert held.room(now_us=number) == 0
        held.drop(token_of(due(f"t{number}")))
        assert held.room(now_us=number) == 1
        held.add([due(f"u{number}", deadline_ms=2000)], offset_us=0)
        assert (held.room(now_us=number), held.next_look_us()) == (0, 1_000_000)
    assert deadlines.looks == 0
    assert (held.room(now_us=1_000_000), held.next_look_us()) == (0, 2_000_000)
    assert deadlines.looks == 2
    assert held.room(now_us=2_000_000) == 100


def test_popped_claims_are_no_longer_held() -> None:
    held = HeldClaims(credits=5)
    held.add([due("a"), due("b")], offset_us=0)

    assert held.pop(partition=4) == []
    assert len(held.pop(partition=3)) == 2
    assert held.pop() == []
