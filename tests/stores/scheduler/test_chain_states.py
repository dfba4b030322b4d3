"""Chain states under compare-and-set: the contract of ChainStateRepository."""

import asyncio

import pytest
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, Bench, names, settling, shape
from tradewind.scheduler.domain.chain_state import (
    REASON,
    STATUS,
    STOP,
    SUBMITTED,
    ChainState,
    ComponentEnd,
    StopRequest,
    UpdateOutcome,
    component_field,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.use_cases.update_state import update_state
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of


async def test_loading_an_unknown_run_creates_nothing(bench: Bench, server: RedisServer | None) -> None:
    assert await bench.stores.states.load(RunName("f", 0)) is None
    assert await bench.stores.states.load_many([]) == []
    if server is not None:
        assert await server.keys() == []


async def test_loading_is_repeatable_and_keeps_the_order(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    other = await bench.begun()
    assert await bench.state(state.name) == state
    found = await bench.stores.states.load_many([other.name, RunName("f", 77), state.name])
    assert found == [other, None, state]


async def test_update_increments_the_version(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    result = await bench.write_reason(state, "one")
    assert (result.outcome, result.version, result.end_ms) == (UpdateOutcome.OK, 2, 0)
    assert await bench.state(state.name) == structs.replace(state, version=2, reason="one")


@pytest.mark.parametrize("version", [0, 2, 17])
async def test_update_at_another_version_conflicts_and_writes_nothing(bench: Bench, version: int) -> None:
    await bench.register()
    state = await bench.begun()
    result = await bench.write_reason(structs.replace(state, version=version), "stale")
    assert (result.outcome, result.version) == (UpdateOutcome.CONFLICT, 1)
    assert await bench.state(state.name) == state


@pytest.mark.parametrize("version", [0, 1, 17])
async def test_updates_do_not_create_a_missing_record(bench: Bench, server: RedisServer | None, version: int) -> None:
    await bench.register()
    state = await bench.begun()
    ghost = structs.replace(state, name=RunName("f", 5), version=version)
    assert (await bench.write_reason(ghost, "late")).outcome is UpdateOutcome.MISSING
    assert (await bench.end(ghost, log="late")).outcome is UpdateOutcome.MISSING
    assert await bench.stores.states.load(ghost.name) is None
    assert await bench.log_lines(5) == []


async def test_update_with_another_run_id_finds_no_record(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    other = structs.replace(state, facts=structs.replace(state.facts, run_id="another"))
    assert (await bench.write_reason(other, "mine")).outcome is UpdateOutcome.MISSING


async def test_update_writes_only_the_named_fields(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    stop = StopRequest("ada", "why not", bench.now, timeout=True)
    wished = structs.replace(
        state, reason="a b", stop=stop, submitted_ms=5, components={"0": ComponentEnd(1, 2, 3, 4, 5)}
    )
    fields = {REASON: {"reason": "a b"}, STOP: {"stop": stop}, SUBMITTED: {"submitted_ms": 5}}
    expected = state
    for version, (field, written) in enumerate(fields.items(), start=1):
        assert (await bench.write(structs.replace(wished, version=version), {field})).ok
        expected = structs.replace(expected, version=version + 1, **written)  # type: ignore[arg-type]
        assert await bench.state(state.name) == expected
    result = await bench.write(structs.replace(wished, version=4), {component_field("0")})
    assert result.ok
    assert (await bench.state(state.name)).components == {"0": ComponentEnd(1, 2, 3, 4, 5)}


async def test_unknown_field_raises_value_error(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    with pytest.raises(ValueError, match="colour"):
        await bench.write(state, {"colour"})


async def test_component_ends_are_merged_one_by_one(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.fold(state, {"1": ComponentEnd(completed=3, sinks_completed=1)})
    state = await bench.state(state.name)
    assert not state.all_finished
    await bench.fold(state, {"0": ComponentEnd(failed=1, skipped=2)})
    state = await bench.state(state.name)
    assert state.all_finished
    assert state.counts() == ComponentEnd(3, 1, 0, 2, 1)


@pytest.mark.parametrize("status", [status for status in CycleStatus if is_terminal(status)])
async def test_terminal_status_never_changes(bench: Bench, status: CycleStatus) -> None:
    await bench.register()
    state = await bench.begun()
    bench.clock.advance(9)
    result = await bench.end(state, status, log="over")
    assert (result.outcome, result.version, result.end_ms) == (UpdateOutcome.OK, 2, bench.now)
    ended = await bench.state(state.name)
    assert (ended.status, ended.end_ms) == (status, bench.now)
    for version in (0, 1, 2, 3):
        late = structs.replace(ended, version=version)
        assert (await bench.write_reason(late, "late")).outcome is UpdateOutcome.TERMINAL
        assert (await bench.end(late, CycleStatus.COMPLETED)).outcome is UpdateOutcome.TERMINAL
    assert await bench.state(state.name) == ended
    assert await bench.log_lines(0) == ["Starting cycle 0", "over", f"Cycle 0 {status}"]


async def test_ended_run_is_no_longer_open_and_its_records_expire(bench: Bench, server: RedisServer | None) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.end(state)
    assert (await bench.flow()).running_cycles == 0
    if server is not None:
        lasting = [key for key in await server.keys_without_ttl() if ":cycle:" in key or ":logs:" in key]
        assert lasting == []
    else:
        bench.clock.advance(7 * 24 * 3600 * 1000)
        assert await bench.stores.states.load(state.name) is None


async def test_one_write_folds_and_ends_many_runs(bench: Bench) -> None:
    await bench.register()
    states = [await bench.begun() for _ in range(3)]
    updates = [
        RunUpdate(
            structs.replace(state, components={"0": ComponentEnd(2)}, status=CycleStatus.COMPLETED),
            (component_field("0"), STATUS),
        )
        for state in states
    ]
    stale = RunUpdate(structs.replace(states[0], version=9, reason="x"), (REASON,))
    results = await bench.stores.states.update_many([*updates, stale])
    assert [result.outcome.value for result in results] == ["ok", "ok", "ok", "terminal"]
    for state in await bench.stores.cycles.newest("f", None, 9):
        assert state.status is CycleStatus.COMPLETED
        assert state.components == {"0": ComponentEnd(2)}
        assert await bench.log_lines(state.name.cycle) == [
            f"Starting cycle {state.name.cycle}",
            f"Cycle {state.name.cycle} completed",
        ]


async def test_update_may_set_the_time_of_the_next_check(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    update = RunUpdate(structs.replace(state, submitted_ms=bench.now), {SUBMITTED}, check_in_ms=777)
    await bench.stores.states.update_many([update])
    check = (await bench.stores.open_runs.check([partition_of("f")], 9))[partition_of("f")]
    assert check.next_ms == bench.now + 777


async def test_oldest_ended_cycles_beyond_keep_cycles_are_removed(bench: Bench, server: RedisServer | None) -> None:
    await bench.register()
    lasting = await bench.begun(bench.request(shape=shape(keep_cycles=3)))
    for _ in range(8):
        await bench.end(await bench.begun(bench.request(shape=shape(keep_cycles=3))))
    assert names(await bench.stores.cycles.newest("f", None, 99)) == [8, 7, 6, 0]
    await bench.end(lasting)
    assert names(await bench.stores.cycles.newest("f", None, 99)) == [8, 7, 6]
    if server is not None:
        kept = [key for key in await server.keys() if ":cycle:" in key]
        assert len(kept) == 3


async def test_recently_ended_cycles_are_kept_beyond_keep_cycles(
    bench: Bench, server: RedisServer | None, clock: ManualClock
) -> None:
    bench = settling(server, clock)
    await bench.register(keep_cycles=1)
    one = bench.request(shape=shape(keep_cycles=1))
    first, *others = [await bench.begun(structs.replace(one, run_id=f"r{at}")) for at in range(4)]

    async def on_record() -> list[int]:
        return names(await bench.stores.cycles.newest("f", None, 99))

    for state in others:
        await bench.end(state)
    clock.advance(MINUTE - 1)
    # The first of four cycles ends last, and the cycles after it wait for it.
    await bench.end(first)
    clock.advance(MINUTE - 1)
    last = await bench.begun(structs.replace(one, run_id="last"))
    await bench.end(last)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert await on_record() == [4, 3, 2, 1, 0]
    clock.advance(1)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert await on_record() == [4]


async def test_many_old_cycles_are_removed_in_steps(bench: Bench) -> None:
    await bench.register()
    for _ in range(30):
        await bench.end(await bench.begun())
    for expected in (11, 1):
        await bench.end(await bench.begun(bench.request(shape=shape(keep_cycles=1))))
        assert len(await bench.stores.cycles.newest("f", None, 99)) == expected


async def test_oldest_cycles_are_removed_in_batches_of_ten(bench: Bench) -> None:
    await bench.register()
    for _ in range(109):
        await bench.end(await bench.begun())
    assert len(await bench.stores.cycles.newest("f", None, 999)) == 109
    await bench.end(await bench.begun())
    assert len(await bench.stores.cycles.newest("f", None, 999)) == 100
    await bench.end(await bench.begun())
    assert len(await bench.stores.cycles.newest("f", None, 999)) == 101
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert len(await bench.stores.cycles.newest("f", None, 999)) == 100


async def test_flow_is_trimmed_once_for_all_of_its_runs_that_end_together(bench: Bench) -> None:
    await bench.register(keep_cycles=2)
    states = [await bench.begun(bench.request(shape=shape(keep_cycles=2))) for _ in range(50)]
    updates = [RunUpdate(structs.replace(state, status=CycleStatus.COMPLETED), (STATUS,)) for state in states]
    results = await bench.stores.states.update_many(updates)
    assert {result.outcome for result in results} == {UpdateOutcome.OK}
    assert [state.name.cycle for state in await bench.stores.cycles.newest("f", None, 99)] == [49, 48]


async def test_keep_cycles_holds_in_whatever_order_cycles_end(bench: Bench) -> None:
    await bench.register()
    for state in sorted([await bench.begun() for _ in range(150)], key=lambda state: -(state.name.cycle % 10 == 0)):
        await bench.end(state)
    assert len(await bench.stores.cycles.newest("f", None, 999)) == 100


async def test_fifty_concurrent_writers_lose_no_increments(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()

    def one_more(current: ChainState) -> tuple[ChainState, set[str]]:
        return structs.replace(current, submitted_ms=current.submitted_ms + 1), {SUBMITTED}

    async def increment() -> None:
        for _ in range(20):
            await update_state(bench.stores.states, state.name, one_more, deadline_s=60)

    await asyncio.gather(*(increment() for _ in range(50)))
    state = await bench.state(state.name)
    assert (state.submitted_ms, state.version) == (1000, 1001)
