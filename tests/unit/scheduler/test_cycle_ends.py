"""The words for the end of a cycle: status, reason and the line of its log."""

from dataclasses import replace

import pytest
from msgspec import structs

from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd, CycleFacts, CycleOrigin, Notes, StopRequest
from tradewind.scheduler.domain.cycle_log import cycle_log
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ending import ended_state, given_up_state
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.log_line import LogLevel
from tradewind.scheduler.domain.run_name import RunName

FACTS = CycleFacts("r0", "default", 1, CycleOrigin.SCHEDULE, 1, 1, 0, 6, 2, FailurePolicy.SKIP_DOWNSTREAM)
GOOD, BROKEN = ComponentEnd(3, sinks_completed=1), ComponentEnd(1, 1, 0, 1)
STOP = StopRequest("ada", "", 5)


@pytest.mark.parametrize(
    ("ends", "stop", "status", "level", "reason"),
    [
        ((GOOD, GOOD), None, CycleStatus.COMPLETED, LogLevel.INFO, ""),
        ((GOOD, BROKEN), None, CycleStatus.PARTIAL, LogLevel.WARNING, "1 failed, 1 skipped of 6 nodes"),
        ((BROKEN, BROKEN), None, CycleStatus.FAILED, LogLevel.ERROR, "2 failed, 2 skipped of 6 nodes"),
        ((GOOD, GOOD), STOP, CycleStatus.CANCELLED, LogLevel.WARNING, 'stopped by "ada" (all completed of 6 nodes)'),
        (
            (GOOD, ComponentEnd(0, 0, 1, 2)),
            replace(STOP, reason="enough"),
            CycleStatus.CANCELLED,
            LogLevel.WARNING,
            "enough (1 terminated, 2 skipped of 6 nodes)",
        ),
        (
            (GOOD, BROKEN),
            StopRequest("system", "it took longer than 5 s", 5, timeout=True),
            CycleStatus.TIMEOUT,
            LogLevel.ERROR,
            "it took longer than 5 s (1 failed, 1 skipped of 6 nodes)",
        ),
    ],
)
def test_ended_cycle_has_status_reason_and_log_line(
    ends: tuple[ComponentEnd, ComponentEnd],
    stop: StopRequest | None,
    status: CycleStatus,
    level: LogLevel,
    reason: str,
) -> None:
    state = ChainState(RunName("f", 7), FACTS, 4, components={"0": ends[0], "1": ends[1]}, stop=stop)

    final, fields = ended_state(state)

    error = {
        "partial": "NODES_FAILED",
        "failed": "NODES_FAILED",
        "timeout": "CYCLE_TIMEOUT",
        "cancelled": "CYCLE_STOPPED",
    }
    noted = Notes(error.get(status.value, ""))
    assert final == structs.replace(state, status=status, reason=reason, notes=noted)
    assert set(fields) == ({"status", "reason", "error"} if reason else {"status"})
    (_, log) = cycle_log([structs.replace(final, end_ms=9)], [])
    assert (log.level, log.text) == (level, f"Cycle 7 {status.value}" + (f": {reason}" if reason else ""))


def test_reason_of_a_flow_of_one_node_is_in_the_singular() -> None:
    state = ChainState(
        RunName("f", 7), structs.replace(FACTS, node_count=1), 4, components={"0": ComponentEnd(0, 1, 0, 0)}
    )
    assert ended_state(state)[0].reason == "1 failed of 1 node"


def test_reason_for_waiting_is_cleared_when_the_cycle_completes() -> None:
    waited = ChainState(
        RunName("f", 0), structs.replace(FACTS, component_count=1), 2, components={"0": GOOD}, reason="QUEUE_FULL"
    )

    final, fields = ended_state(waited)

    assert (final.reason, "reason" in fields) == ("", True)


def test_cycle_that_is_given_up_fails_with_the_reason() -> None:
    final, fields = given_up_state(ChainState(RunName("f", 3), FACTS, 1), "its definition is gone")

    assert (final.status, final.reason) == (CycleStatus.FAILED, "its definition is gone")
    assert set(fields) == {"status", "reason", "error"}
    assert final.notes.error == "DEFINITION_LOST"
    (_, log) = cycle_log([structs.replace(final, end_ms=9)], [])
    assert (log.level, log.text) == (LogLevel.ERROR, "Cycle 3 failed: its definition is gone")
