"""The status of a batch, by the counts of its items, and how ad-hoc work becomes a run."""

from typing import Any

import pytest

from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.batch import BatchProgress, BatchStatus, batch_status
from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import StopMark

STOP = StopMark("enough", "ann", 1)


def component(nodes: int, *, stop: StopMark | None = None, **counts: Any) -> Component:
    """Return a batch; it is finished when all its items have ended."""
    open_ = nodes - sum(count for name, count in counts.items() if name not in ("running", "cached"))
    status = ComponentStatus.RUNNING if open_ else ComponentStatus.FINISHED
    return Component(RunName.of_batch("b"), "r", "0", status, "ann", "p", nodes, stop=stop, **counts)


@pytest.mark.parametrize(
    ("batch", "status"),
    [
        (component(3), BatchStatus.QUEUED),
        (component(3, running=1), BatchStatus.RUNNING),
        (component(3, failed=1), BatchStatus.RUNNING),
        (component(3, skipped=2, running=1, stop=STOP), BatchStatus.RUNNING),
        (component(3, completed=3), BatchStatus.COMPLETED),
        (component(3, completed=3, stop=STOP), BatchStatus.COMPLETED),
        (component(3, completed=2, failed=1), BatchStatus.PARTIAL),
        (component(3, completed=2, terminated=1), BatchStatus.PARTIAL),
        (component(3, completed=2, failed=1, stop=STOP), BatchStatus.PARTIAL),
        (component(3, failed=3), BatchStatus.FAILED),
        (component(3, failed=2, skipped=1), BatchStatus.FAILED),
        (component(3, completed=1, failed=1, skipped=1, stop=STOP), BatchStatus.CANCELLED),
        (component(3, skipped=3), BatchStatus.CANCELLED),
    ],
)
def test_batch_status_follows_from_item_counts(batch: Component, status: BatchStatus) -> None:
    assert batch_status(batch) is status


def test_progress_counts_each_item_once() -> None:
    batch = component(12, running=2, completed=3, failed=1, terminated=1, skipped=1, cached=2)
    assert BatchProgress.of(batch) == BatchProgress(
        total=12, queued=4, running=2, completed=3, failed=1, cancelled=2, cached=2
    )


def test_progress_is_100_percent_only_at_the_end() -> None:
    assert BatchProgress.of(component(3, completed=2)).percent == 66.66
    assert BatchProgress.of(component(10_000, completed=9_999)).percent == 99.99
    assert BatchProgress.of(component(100_001, completed=100_000)).percent == 99.99
    assert BatchProgress.of(component(3, completed=1, failed=1, skipped=1)).percent == 100


def test_run_name_depends_on_user_kind_and_request_id() -> None:
    work = AdHocWork("ann", "noop", ("{}",), request_id="r")
    assert work.run("x") == work.run("y")
    others = [
        AdHocWork("bob", "noop", ("{}",), request_id="r"),
        AdHocWork("ann", "noop", ("{}",), request_id="s"),
        AdHocWork("ann", "noop", ("{}",), batch=True, request_id="r"),
    ]
    assert len({str(each.run("x")) for each in (work, *others)}) == 4
    assert str(AdHocWork("ann", "noop", ("{}",)).run("x")) == "task:x"


def test_different_work_has_different_digests() -> None:
    some = [
        AdHocWork("ann", "noop", ("a", "bc"), batch=True),
        AdHocWork("ann", "noop", ("ab", "c"), batch=True),
        AdHocWork("ann", "noop", ("abc",), batch=True),
        AdHocWork("ann", "noop", ("abc",)),
        AdHocWork("ann", "noop", ("abc",), priority=1),
        AdHocWork("ann", "noop", ("abc",), total_ms=1),
        AdHocWork("ann", "nop", ("abc",)),
    ]
    assert len({each.digest for each in some}) == len(some)
    assert AdHocWork("bob", "noop", ("abc",)).digest == some[3].digest
    assert some[0].submission(some[0].run("x")).run_id == some[0].digest[:20]
