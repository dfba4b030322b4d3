"""Delivering due triggers: when it sleeps, what it asks of the store, what it leaves behind."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.waiting import until
from tradewind.server.clock import SystemClock
from tradewind.trigger.domain.claim import Ack, DueTrigger, Nack, Subscription, Token
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.ports.claims import ClaimOrder, Claims, Settlement, Survey
from tradewind.trigger.ports.wakes import NewReceiver
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.use_cases import return_claims
from tradewind.trigger.use_cases.deliver_due import MAX_UNREPORTED_TOKENS, Delivery
from tradewind.trigger.use_cases.held_claims import token_of
from tradewind.trigger.use_cases.parcel import Opening, Parcel
from tradewind.trigger.use_cases.receivers import Receivers

HOUR = 3_600_000
PARTITION = 3


class CountingStore(MemoryTriggerStore):
    """Counts calls, can hold up claims, and has its own clock, which goes wrong."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self.surveyed: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.skew_ms = -7_000
        super().__init__(lambda: SystemClock().now_ms() + self.skew_ms, policy)

    @property
    def now_ms(self) -> int:
        return self._clock()

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        self.calls["claim_due"] += 1
        answers = await super().claim_due(orders)
        await self.open.wait()
        return answers

    async def poll(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        self.calls["poll"] += 1
        self.surveyed.append(survey)
        return await super().poll(partitions, survey)


class Scene:
    """A delivery from a store in memory."""

    def __init__(self, store: CountingStore, poll_s: float = 5.0, credits: int = 100, lease_ms: int = 30_000) -> None:
        self.store = store
        self.receivers = Receivers()
        self.delivery = Delivery(store, self.receivers, Opening(credits), lease_ms, poll_s)

    async def save(self, id: str, delay_ms: int = 0, *, partition: int = PARTITION, notify: bool = True) -> Trigger:
        at_ms = self.store.now_ms + delay_ms
        draft = TriggerDraft(id, "flow", Schedule.once(at_ms))
        saved = await self.store.save(partition, draft)
        if notify:
            self.delivery.expect(partition, at_ms)
        return saved

    async def next(self) -> Parcel:
        return await asyncio.wait_for(self.delivery.next(), 10)

    async def collect(self, count: int) -> list[DueTrigger]:
        """Return the due triggers once `count` of them have come."""
        due: list[DueTrigger] = []
        while len(due) < count:
            due += (await self.next()).due
        return due

    async def status(self, id: str) -> TriggerStatus:
        found = await self.store.find(PARTITION, id)
        assert found is not None
        return found.status

    async def end(self) -> None:
        self.delivery.close()
        await self.receivers.settle()


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene(CountingStore())
    await scene.delivery.subscribe([(PARTITION, 1)])
    yield scene
    await scene.end()


def ids(parcel: Parcel) -> list[str]:
    return [due.trigger.id for due in parcel.due]


async def test_delivery_sleeps_until_earliest_trigger_is_due_by_store_clock(scene: Scene) -> None:
    begun = asyncio.get_running_loop().time()
    await scene.save("later", HOUR)
    await scene.save("sooner", 120)

    parcel = await scene.next()

    assert ids(parcel) == ["sooner"]
    assert asyncio.get_running_loop().time() - begun >= 0.11
    assert scene.store.calls["claim_due"] <= 3


async def test_earlier_trigger_wakes_delivery(scene: Scene) -> None:
    await scene.save("later", HOUR)
    waiting = asyncio.create_task(scene.next())
    await asyncio.sleep(0)

    await scene.save("now")

    assert ids(await waiting) == ["now"]


async def test_idle_delivery_only_polls_at_intervals() -> None:
    scene = Scene(CountingStore(), poll_s=0.02)
    await scene.delivery.subscribe([(partition, 1) for partition in range(16)])
    for index in range(1000):
        await scene.save(f"t{index}", HOUR, partition=index % 16)
    waiting = asyncio.create_task(scene.next())

    await until(lambda: scene.store.calls["poll"] >= 17, "it has polled repeatedly")

    assert set(scene.store.calls) == {"poll"}
    assert set(scene.store.surveyed) == set(range(16))
    waiting.cancel()
    await scene.end()


async def test_next_poll_finds_trigger_whose_wake_was_lost() -> None:
    scene = Scene(CountingStore(), poll_s=0.05)
    await scene.delivery.subscribe([(partition, 1) for partition in range(16)])
    waiting = asyncio.create_task(scene.next())
    await asyncio.sleep(0)

    await scene.save("unannounced", notify=False)

    assert ids(await waiting) == ["unannounced"]
    assert PARTITION not in scene.store.surveyed, "it was found before its partition was looked at more closely"
    await scene.end()


async def test_trigger_is_delivered_at_once_when_store_clock_jumps_forward() -> None:
    scene = Scene(CountingStore(), poll_s=0.05)
    await scene.delivery.subscribe([(partition, 1) for partition in range(16)])
    await scene.save("tick", HOUR)
    waiting = asyncio.create_task(scene.next())
    await asyncio.sleep(0)

    scene.store.skew_ms += HOUR

    assert ids(await waiting) == ["tick"]
    assert scene.store.calls["poll"] <= 2
    await scene.end()


async def test_delivery_polls_at_once_after_a_gap_in_wakes(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.next())
    await asyncio.sleep(0)
    await scene.save("unannounced", notify=False)

    scene.receivers.poll_all()

    assert ids(await waiting) == ["unannounced"]


async def test_claim_of_dead_receiver_is_redelivered_after_its_lease() -> None:
    store = CountingStore()
    dead = Scene(store)
    dead.delivery = Delivery(store, dead.receivers, Opening(10), 80, 5.0)
    await dead.delivery.subscribe([(PARTITION, 1)])
    await dead.save("tick")
    await dead.next()

    living = Scene(store)
    await living.delivery.subscribe([(PARTITION, 2)])
    parcel = await living.next()

    assert ids(parcel) == ["tick"]
    assert parcel.due[0].trigger.failures == 1
    await dead.end()
    await living.end()


async def test_credits_limit_held_claims_across_partitions() -> None:
    scene = Scene(CountingStore(), credits=5)
    await scene.delivery.subscribe([(1, 1), (2, 1), (3, 1)])
    for partition in (1, 2, 3):
        for index in range(3):
            await scene.save(f"p{partition}-{index}", partition=partition)

    first = await scene.collect(5)
    assert len(first) == 5
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.delivery.next(), 0.02)
    await scene.delivery.answer([Ack(token_of(due)) for due in first[:2]], [], [])
    second = await scene.collect(2)

    assert len(second) == 2
    await scene.end()


async def test_receiver_without_credits_gets_more_as_soon_as_a_claim_lapses() -> None:
    scene = Scene(CountingStore(), poll_s=1e9, credits=1, lease_ms=50)
    await scene.delivery.subscribe([(PARTITION, 1)])
    await scene.save("tick")

    assert [each.trigger.id for each in await scene.collect(2)] == ["tick", "tick"]

    await scene.end()


async def test_idle_partition_leaves_its_credits_to_others() -> None:
    scene = Scene(CountingStore(), credits=4)
    await scene.delivery.subscribe([(1, 1), (2, 1)])
    # They are overdue, so that both are ready at once, however precisely each partition's clock is known.
    await scene.save("a0", -1000, partition=1)
    for index in range(4):
        await scene.save(f"b{index}", -1000, partition=2)

    due = await scene.collect(4)

    assert sorted(each.trigger.id for each in due) == ["a0", "b0", "b1", "b2"]
    await scene.end()


async def test_claims_of_a_cancelled_call_are_given_back(scene: Scene) -> None:
    await scene.save("tick")
    scene.store.open.clear()
    waiting = asyncio.create_task(scene.next())
    await until(lambda: scene.store.calls["claim_due"], "the claim is under way")

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    scene.delivery.close()
    assert await scene.status("tick") is TriggerStatus.CLAIMED
    scene.store.open.set()
    await scene.receivers.settle()

    assert await scene.status("tick") is TriggerStatus.SCHEDULED


async def test_claims_for_partition_unsubscribed_meanwhile_are_given_back(scene: Scene) -> None:
    await scene.save("tick")
    scene.store.open.clear()
    waiting = asyncio.create_task(scene.next())
    await until(lambda: scene.store.calls["claim_due"], "the claim is under way")

    scene.delivery.unsubscribe([PARTITION])
    scene.store.open.set()
    await scene.receivers.settle()

    assert await scene.status("tick") is TriggerStatus.SCHEDULED
    assert not waiting.done()
    waiting.cancel()


async def test_false_news_of_another_receiver_does_not_end_delivery(scene: Scene) -> None:
    scene.receivers.notify(NewReceiver(Subscription(PARTITION, 9, "rumour")))
    await scene.save("tick")

    assert ids(await scene.next()) == ["tick"]


async def test_replaced_receiver_is_notified_even_without_credits() -> None:
    scene = Scene(CountingStore(), credits=1)
    await scene.delivery.subscribe([(PARTITION, 1)])
    await scene.save("tick")
    await scene.next()
    newer = Subscription(PARTITION, 2, "newer")
    await scene.store.subscribe([newer])

    scene.receivers.notify(NewReceiver(newer))
    parcel = await scene.next()
    await scene.receivers.settle()

    assert (parcel.due, parcel.ended) == ((), (PARTITION,))
    assert await scene.status("tick") is TriggerStatus.SCHEDULED
    await scene.end()


async def test_subscribing_with_older_epoch_keeps_own_newer_subscription(scene: Scene) -> None:
    await scene.delivery.subscribe([(PARTITION, 5)])
    await scene.delivery.subscribe([(PARTITION, 4)])
    await scene.save("tick")

    parcel = await scene.next()

    assert (ids(parcel), parcel.ended) == (["tick"], ())


async def test_exactly_one_of_two_concurrent_subscriptions_stays() -> None:
    store = CountingStore()
    scenes = [Scene(store), Scene(store)]
    scenes[1].receivers = scenes[0].receivers
    for scene in scenes:
        scene.delivery = Delivery(store, scenes[0].receivers, Opening(10), 30_000, 5.0)
    await asyncio.gather(*(scene.delivery.subscribe([(PARTITION, 1)]) for scene in scenes))
    await scenes[0].save("tick")
    for scene in scenes:
        scene.delivery.expect(PARTITION, 0)

    parcels = await asyncio.gather(*(scene.next() for scene in scenes))

    assert sorted(parcel.ended for parcel in parcels) == [(), (PARTITION,)]
    assert [ids(parcel) for parcel in parcels if not parcel.ended] == [["tick"]]
    for scene in scenes:
        await scene.end()


async def test_dead_trigger_is_logged_with_its_reason() -> None:
    scene = Scene(CountingStore(Policy(max_failures=1)))
    await scene.delivery.subscribe([(PARTITION, 1)])
    await scene.save("poison")
    (due,) = (await scene.next()).due

    with capture_logs() as logs:
        await scene.delivery.answer([], [Nack(token_of(due), 0, "hopeless")], [])

    (line,) = [line for line in logs if line["event"] == "trigger_dead"]
    assert (line["log_level"], line["trigger_id"], line["error"]) == ("error", "poison", "hopeless")
    await scene.end()


async def test_unavailable_store_ends_delivery_which_still_closes_cleanly(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise ConnectionError("the store does not answer")

    await scene.save("tick")
    await scene.next()
    monkeypatch.setattr(scene.store, "claim_due", away)
    monkeypatch.setattr(scene.store, "give_back", away)
    await scene.save("tock")

    with pytest.raises(ConnectionError):
        await scene.next()
    with capture_logs() as logs:
        await scene.end()

    assert [line["event"] for line in logs] == ["claims_not_given_back"]


async def test_claims_are_given_back_when_the_store_accepts_writes_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(return_claims, "_RETRY_S", 0.001)
    give_back, tries = scene.store.give_back, 0

    async def refused_at_first(tokens: Sequence[Token], session: str) -> Settlement:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionError("the store accepts no writes")
        return await give_back(tokens, session)

    await scene.save("tick")
    await scene.next()
    monkeypatch.setattr(scene.store, "give_back", refused_at_first)
    with capture_logs() as logs:
        scene.delivery.close()
        scene.delivery = Delivery(scene.store, scene.receivers, Opening(10), 30_000, 5.0)
        await scene.delivery.subscribe([(PARTITION, 2)])
        assert ids(await scene.next()) == ["tick"]

    assert (tries, logs) == (3, [])


async def test_receiver_must_read_lost_tokens_before_more_of_its_messages_are_read(scene: Scene) -> None:
    scene.delivery.report_lost(["nothing"] * MAX_UNREPORTED_TOKENS)
    await scene.delivery.wait_for_reader()
    scene.delivery.report_lost(["nothing"])
    listening = asyncio.create_task(scene.delivery.wait_for_reader())
    await asyncio.sleep(0)
    assert not listening.done()
    assert len((await scene.next()).lost) == MAX_UNREPORTED_TOKENS + 1
    await listening
