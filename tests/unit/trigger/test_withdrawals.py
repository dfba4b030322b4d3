"""Orders that a hung store did not answer are withdrawn, since it may have carried them out."""

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from tests.unit.trigger.test_deliver_due import PARTITION, CountingStore, Scene
from tests.waiting import until
from tradewind.trigger.domain.claim import Ack
from tradewind.trigger.domain.trigger import TriggerStatus
from tradewind.trigger.ports.claims import ClaimOrder, Claims
from tradewind.trigger.use_cases.deliver_due import Delivery
from tradewind.trigger.use_cases.held_claims import token_of
from tradewind.trigger.use_cases.parcel import Opening


class HungStore(CountingStore):
    """Hangs as long as `hangs`: calls fail, but claims are carried out all the same, at once or when it wakes."""

    def __init__(self, at_once: bool = True) -> None:
        super().__init__()
        self.hangs = False
        self._at_once = at_once
        self._unanswered: list[Sequence[ClaimOrder]] = []

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        if self.hangs:
            self._unanswered.append(orders)
            if self._at_once:
                await self.carry_out()
            raise TimeoutError
        return await super().claim_due(orders)

    async def carry_out(self) -> None:
        """Carry out the claims that were not answered."""
        while self._unanswered:
            await super().claim_due(self._unanswered.pop())

    async def withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        self.calls["withdraw"] += 1
        if self.hangs:
            raise TimeoutError
        await super().withdraw(orders)


async def hung_scene(store: HungStore, lease_ms: int = 30_000) -> Scene:
    """Return a delivery whose claim of `tick` was not answered."""
    scene = Scene(store, lease_ms=lease_ms)
    await store.listen(scene.receivers.notify, scene.receivers.poll_all)
    await scene.delivery.subscribe([(PARTITION, 1)])
    await scene.save("tick")
    store.hangs = True
    with pytest.raises(TimeoutError):
        await scene.next()
    return scene


@pytest.mark.parametrize("at_once", [True, False])
async def test_claim_made_while_store_hung_is_redelivered_long_before_its_lease_ends(at_once: bool) -> None:
    store = HungStore(at_once)
    scene = await hung_scene(store)
    scene.delivery.close()
    await until(lambda: store.calls["withdraw"], "the order is withdrawn in vain")
    store.hangs = False
    # Once the store answers again, it receives the withdrawal of an order that it has not carried out yet.
    await until(lambda: store.calls["withdraw"] > 1, "the order is withdrawn")
    await store.carry_out()
    woken = asyncio.get_running_loop().time()

    scene.delivery = Delivery(store, scene.receivers, Opening(100), 30_000, 5.0)
    await scene.delivery.subscribe([(PARTITION, 1)])
    (due,) = (await scene.next()).due

    assert asyncio.get_running_loop().time() - woken < 2
    assert (due.trigger.failures, due.token.split(":")[2]) == (0, "2")
    await until(lambda: store.calls["withdraw"] == 3, "the order is withdrawn once more")
    await scene.delivery.answer([Ack(token_of(due))], [], [])
    assert await scene.status("tick") is TriggerStatus.COMPLETED
    await scene.end()


async def test_withdrawing_an_order_keeps_claims_of_answered_orders() -> None:
    store = HungStore()
    scene = Scene(store)
    await scene.delivery.subscribe([(PARTITION, 1)])
    await scene.save("tick")
    (due,) = (await scene.next()).due
    await scene.save("tock")
    store.hangs = True
    with pytest.raises(TimeoutError):
        await scene.next()
    store.hangs = False

    await until(lambda: store.calls["withdraw"] >= 2, "the order is withdrawn")

    assert await scene.status("tock") is TriggerStatus.SCHEDULED
    assert await scene.status("tick") is TriggerStatus.CLAIMED
    await scene.delivery.answer([Ack(token_of(due))], [], [])
    assert await scene.status("tick") is TriggerStatus.COMPLETED
    await scene.end()


@pytest.mark.parametrize("lease_ms", [100, 1900])
async def test_withdrawal_is_tried_twice_even_with_a_brief_lease(lease_ms: int) -> None:
    store = HungStore(at_once=False)
    scene = await hung_scene(store, lease_ms)

    await until(lambda: store.calls["withdraw"], "the order is withdrawn in vain")
    store.hangs = False
    await store.carry_out()
    await until(lambda: store.calls["withdraw"] == 2, "the order is withdrawn")

    assert await scene.status("tick") is TriggerStatus.SCHEDULED
    await scene.end()


async def test_withdrawal_gives_up_after_the_lease_or_on_shutdown() -> None:
    short = await hung_scene(HungStore(), lease_ms=2000)
    short.delivery.close()
    with capture_logs() as logs:
        await until(lambda: not short.receivers.busy, "it has been given up")
    assert short.store.calls["withdraw"] == 2
    assert [(line["event"], line["partitions"]) for line in logs] == [("orders_not_withdrawn", [PARTITION])]

    long = await hung_scene(HungStore())
    await until(lambda: long.store.calls["withdraw"] == 1, "the order is withdrawn in vain")
    begun = asyncio.get_running_loop().time()
    await long.end()
    assert asyncio.get_running_loop().time() - begun < 0.5
    assert long.store.calls["withdraw"] == 1
