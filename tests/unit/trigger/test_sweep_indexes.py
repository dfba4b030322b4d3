"""Sweeps go through every index of every queue, and the log says what they found."""

from structlog.testing import capture_logs

from tests.waiting import until
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import PARTITIONS
from tradewind.server.side_tasks import SideTasks
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.loops import sweep_loop
from tradewind.trigger.ports.queues import Swept
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.memory_queues import MemoryQueueStore
from tradewind.trigger.use_cases.sweep_indexes import SweepIndexes

PARTITION, OVERDUE_MS = 3, 300_000


class LossyQueues(MemoryQueueStore):
    """Queues of which the store has lost what the test says; notes what is swept."""

    lost: dict[tuple[str, str, int], Swept]
    swept: list[tuple[int, str, str, int]]

    async def sweep(self, partition: int, queue: str, index: str, first: int) -> Swept:
        self.swept.append((partition, queue, index, first))
        return self.lost.get((queue, index, first), Swept()) if partition == PARTITION else Swept()


async def queues_with_a_trigger(clock: ManualClock, queue: str) -> LossyQueues:
    """Return queues in which one trigger is due."""
    store = MemoryTriggerStore(clock)
    await store.of_queue(queue).save(PARTITION, TriggerDraft("t", "k", Schedule.once(clock())))
    queues = LossyQueues(store)
    queues.lost, queues.swept = {}, []
    return queues


async def test_every_part_of_every_index_is_swept_and_losses_are_logged() -> None:
    queues = await queues_with_a_trigger(ManualClock(), "q")
    queues.lost = {
        ("q", "all", 0): Swept(mended=("back",), next_rank=7),
        ("q", "all", 7): Swept(mended=("too",)),
        ("", "due", 0): Swept(orphans=("gone",)),
    }
    with capture_logs() as logs:
        await SweepIndexes(queues, OVERDUE_MS)()
    assert [
        (each["event"], each.get("queue"), each["trigger_id"]) for each in logs if each["log_level"] == "error"
    ] == [
        ("trigger_without_record", None, "gone"),
        ("trigger_without_entry", "q", "back"),
        ("trigger_without_entry", "q", "too"),
    ]
    of_flows = [("", index, 0) for index in ("due", "claimed", "dead")]
    of_queue = [("q", "all", 0), ("q", "all", 7), *(("q", index, 0) for index in ("due", "claimed", "dead"))]
    assert queues.swept == [
        (partition, *each)
        for partition in range(PARTITIONS)
        for each in (of_flows + of_queue if partition == PARTITION else of_flows)
    ]


async def test_log_says_which_queue_nobody_receives() -> None:
    for queue, hint in (("q", "start a receiver of the queue"), ("", "no scheduler receives this partition")):
        clock = ManualClock()
        sweep = SweepIndexes(await queues_with_a_trigger(clock, queue), OVERDUE_MS)
        clock.advance(OVERDUE_MS)
        with capture_logs() as logs:
            await sweep()
            assert logs == []
            clock.advance(1)
            await sweep()
        (found,) = logs
        assert (found["event"], found["queue"], found["partition"]) == ("triggers_not_received", queue, PARTITION)
        assert (found["late_ms"], found["hint"]) == (OVERDUE_MS + 1, hint)


async def test_sweeps_go_on_after_one_has_failed() -> None:
    class Failing(SweepIndexes):
        swept = 0

        async def __call__(self) -> None:
            self.swept += 1
            if self.swept == 1:
                raise ConnectionError("away")

    sweep, tasks = Failing(await queues_with_a_trigger(ManualClock(), ""), OVERDUE_MS), SideTasks()
    tasks.begin(sweep_loop(sweep, 0.01))
    await until(lambda: sweep.swept > 1, "another sweep follows")
    await tasks.end()
