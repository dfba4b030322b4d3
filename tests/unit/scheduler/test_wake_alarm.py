"""An alarm rings at the earliest time that anybody has asked for, again after each rest."""

import asyncio

from tradewind.scheduler.use_cases.alarm import Alarm


async def rested_ms(alarm: Alarm) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await alarm.rest(3600.0, at_most_s=5.0), "it rings before the sleep would end by itself"
    return (loop.time() - began) * 1000


async def test_the_soonest_time_counts_in_whichever_order_times_are_asked_for() -> None:
    for asked in ([20, 4_000], [4_000, 20], [4_000, 20, 4_000, 20]):
        alarm = Alarm()
        for ms in asked:
            alarm.ring_in(ms)
        assert 19 <= await rested_ms(alarm) < 4_000


async def test_fewer_milliseconds_asked_for_later_do_not_put_off_what_was_asked_before() -> None:
    alarm = Alarm()
    alarm.ring_in(60)
    await asyncio.sleep(0.05)
    alarm.ring_in(4_000)
    alarm.ring_in(3_000)
    assert await rested_ms(alarm) < 3_000


async def test_it_can_be_set_to_any_time_after_it_has_rung() -> None:
    alarm = Alarm()
    alarm.ring_in(0)
    await rested_ms(alarm)
    alarm.ring_in(30)
    assert 29 <= await rested_ms(alarm) < 4_000


async def test_asking_for_less_wakes_a_sleeper() -> None:
    alarm = Alarm()
    alarm.ring_in(4_000)
    asyncio.get_running_loop().call_later(0.01, alarm.ring_in, 10)
    assert 19 <= await rested_ms(alarm) < 4_000
