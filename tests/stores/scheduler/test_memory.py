"""Variables of runs and of flows, and other rarely used fields of chain states: the contract of every store."""

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import Bench
from tradewind.scheduler.domain.chain_state import (
    ERROR,
    MEMORY,
    RESULT,
    ChainState,
    Notes,
    UpdateOutcome,
    UpdateResult,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.memory import Memory, MemoryChange
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.use_cases.update_state import update_state

LARGE = '"' + "a long text, " * 4000 + '"'
CURSOR = MemoryChange({"cursor": "17", "ü": '["ä", 1.50]'}, change_id="c1")


async def test_each_note_is_written_as_its_own_field(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    notes = Notes("NODES_FAILED", Memory().with_change(CURSOR), '{"profit":1}')
    parts = {"error": ERROR, "memory": MEMORY, "result_json": RESULT}
    expected = state.notes
    for version, (part, field) in enumerate(parts.items(), start=1):
        result = await bench.write(structs.replace(state, version=version, notes=notes), {field})
        assert (result.outcome, result.version) == (UpdateOutcome.OK, version + 1)
        expected = replace(expected, **{part: getattr(notes, part)})
        assert (await bench.state(state.name)).notes == expected
    cleared = structs.replace(state, version=4, notes=Notes())
    assert (await bench.write(cleared, {RESULT})).ok
    assert (await bench.state(state.name)).notes == replace(notes, result_json="")


async def test_large_variables_are_compressed(bench: Bench, server: RedisServer | None) -> None:
    await bench.register()
    state = await bench.begun()
    memory = Memory().with_change(MemoryChange({"text": LARGE}))
    assert (await bench.write(structs.replace(state, notes=Notes(memory=memory)), {MEMORY})).ok
    assert (await bench.stores.memories.try_save("f", memory)).ok
    assert (await bench.state(state.name)).notes.memory == memory
    assert await bench.stores.memories.load("f") == memory
    if server is not None:
        admin = server.connect()
        assert await admin.execute_command("HSTRLEN", Keys().run(*state.name), MEMORY) < 2000
        assert await admin.execute_command("HSTRLEN", Keys().memory("f"), "memory") < 2000


async def test_ended_run_keeps_variables_and_refuses_changes(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    kept = structs.replace(state, notes=Notes(memory=Memory().with_change(CURSOR)))
    assert (await bench.write(kept, {MEMORY})).ok
    assert (await bench.end(structs.replace(state, version=2))).ok
    late = structs.replace(state, version=3, notes=Notes(memory=Memory()))
    assert (await bench.write(late, {MEMORY})).outcome is UpdateOutcome.TERMINAL
    ended = await bench.state(state.name)
    assert (ended.status, ended.notes) == (CycleStatus.COMPLETED, kept.notes)


async def test_open_run_never_expires(bench: Bench, server: RedisServer | None) -> None:
    await bench.register()
    state = await bench.begun()
    changed = structs.replace(state, notes=Notes(memory=Memory().with_change(CURSOR)))
    assert (await bench.write(changed, {MEMORY})).ok
    bench.clock.advance(400 * 24 * 3600 * 1000)
    assert (await bench.state(state.name)).notes == changed.notes
    if server is not None:
        assert await server.connect().pttl(Keys().run(*state.name)) == -1


async def test_flow_variables_last_from_registration_to_deletion(bench: Bench) -> None:
    memories = bench.stores.memories
    assert await memories.load("f") is None
    assert (await memories.try_save("f", Memory().with_change(CURSOR))).outcome is UpdateOutcome.MISSING
    await bench.register()
    assert await memories.load("f") == Memory()
    first = Memory().with_change(CURSOR)
    assert await memories.try_save("f", first) == UpdateResult(UpdateOutcome.OK, 1)
    assert await memories.load("f") == first
    assert await memories.try_save("f", first) == UpdateResult(UpdateOutcome.CONFLICT, 1)
    second = first.with_change(MemoryChange(deleted=("cursor",)))
    assert (await memories.try_save("f", second)).ok
    assert await memories.load("f") == Memory({"ü": '["ä", 1.50]'}, 2, ("c1",))
    await bench.register(digest="d2")
    assert await memories.load("f") == second
    await bench.change_status(FlowStatus.DELETING)
    assert await memories.load("f") is None
    assert (await memories.try_save("f", second.with_change(CURSOR))).outcome is UpdateOutcome.MISSING
    await bench.remove()
    await bench.register()
    assert await memories.load("f") == Memory()


@pytest.mark.parametrize("server", ["memory", "embedded"], indirect=True)
async def test_fifty_concurrent_writers_lose_no_variable_increments(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()

    def one_more(current: ChainState) -> tuple[ChainState, set[str]]:
        count = int(current.notes.memory.variables.get("count", "0")) + 1
        memory = current.notes.memory.with_change(MemoryChange({"count": str(count)}))
        return structs.replace(current, notes=replace(current.notes, memory=memory)), {MEMORY}

    async def increments() -> None:
        for _ in range(100):
            await update_state(bench.stores.states, state.name, one_more, deadline_s=120)

    await asyncio.gather(*(increments() for _ in range(50)))
    state = await bench.state(state.name)
    assert (state.notes.memory.variables["count"], state.notes.memory.version, state.version) == ("5000", 5000, 5001)
