"""A cycle's log: beginnings and ends are taken from records, and merged with written lines in place."""

from msgspec import structs

from tradewind.scheduler.domain.chain_state import ChainState, CycleFacts, CycleOrigin
from tradewind.scheduler.domain.cycle_log import cycle_log
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName

FACTS = CycleFacts("r0", "default", 1, CycleOrigin.SCHEDULE, 10, 10, 0, 6, 2, FailurePolicy.SKIP_DOWNSTREAM)
OPEN = ChainState(RunName("f", 7), FACTS, 1)
ENDED = structs.replace(OPEN, status=CycleStatus.FAILED, reason="no price", end_ms=20)
AGAIN = structs.replace(
    OPEN,
    name=RunName("f", 7, 1),
    facts=structs.replace(FACTS, start_ms=30, rerun=Rerun(0, "r0", (), by="ada")),
    end_ms=0,
)


def written(at_ms: int, text: str) -> LogLine:
    return LogLine(f"{at_ms}-0", "f", 7, "", LogLevel.WARNING, LogSource.USER, text, at_ms)


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_log_of_an_open_cycle_has_its_beginning() -> None:
    (line,) = cycle_log([OPEN], [])
    assert line == LogLine("10-begun-0", "f", 7, "", LogLevel.INFO, LogSource.SCHEDULER, "Starting cycle 7", 10)


def test_end_follows_lines_written_at_the_same_time() -> None:
    lines = cycle_log([ENDED], [written(10, "a"), written(20, "b")])
    assert texts(lines) == ["Starting cycle 7", "a", "b", "Cycle 7 failed: no price"]
    assert (lines[-1].level, lines[-1].at_ms) == (LogLevel.ERROR, 20)


def test_beginning_precedes_lines_written_before_the_planned_time() -> None:
    assert texts(cycle_log([OPEN], [written(9, "not submitted yet")])) == ["Starting cycle 7", "not submitted yet"]


def test_log_shows_the_runs_of_a_cycle_in_order() -> None:
    lines = cycle_log([ENDED, AGAIN], [written(15, "a"), written(30, "b")])
    again = 'Starting run 1 of cycle 7, by "ada"'
    assert texts(lines) == ["Starting cycle 7", "a", "Cycle 7 failed: no price", again, "b"]
    assert len({line.log_id for line in lines}) == len(lines)


def test_lines_of_a_removed_run_come_first() -> None:
    assert texts(cycle_log([AGAIN], [written(15, "a"), written(31, "b")]))[::2] == ["a", "b"]
