"""The cost of a tick does not depend on how many schedules are registered; `benchmarks.schedules` measures its time."""

from benchmarks.schedules import compare

FEW, MANY, TICKS = 20, 2000, 3


async def test_commands_per_tick_do_not_depend_on_the_number_of_schedules() -> None:
    done = await compare((FEW, MANY), TICKS)
    few, many = ([tick.commands for tick in done[count]] for count in (FEW, MANY))
    assert few == many
    assert all(tick[f"{step}: fcall"] == 1 for tick in many for step in ("claim", "begin", "answer"))
