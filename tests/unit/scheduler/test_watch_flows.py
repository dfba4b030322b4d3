"""Which states of runs a watcher receives."""

from tests.unit.scheduler.test_update_state import FACTS
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.use_cases.watch_flows import _Watch


def test_watcher_receives_another_end_of_a_run_whose_end_was_lost() -> None:
    """The store may have lost the end that was reported, and gives its version out again."""
    running = ChainState(RunName("f", 0), FACTS, 1)
    cancelled = running._replace(status=CycleStatus.CANCELLED, version=3, end_ms=1000)
    failed = running._replace(status=CycleStatus.FAILED, version=3, end_ms=2000)
    watch = _Watch({"f"}, None)
    watch.begin([])
    received = []
    for state in (running, cancelled, cancelled, running, failed, failed):
        watch.receive("f", state)
        received += watch.pop()
    assert received == [running, cancelled, failed]
