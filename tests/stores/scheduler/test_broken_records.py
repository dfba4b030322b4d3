"""A record that somebody has changed by hand costs nothing but itself."""

from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, Bench, redis_stores, shape
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.bulk_job import BulkAction, BulkFilter, BulkJob
from tradewind.scheduler.domain.chain_state import STATUS, ChainState, UpdateOutcome
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.weather import read_weather
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.stores.redis.ranks import OPEN
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow
from tradewind.scheduler.use_cases.read_flows import FlowFilter, ReadFlows
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import partition_of

KEYS = Keys()
BROKEN, WHOLE = RunName("f", 0), RunName("f", 1)
RUN = KEYS.run(*BROKEN)
IN_ONE_PARTITION = [f"f{at}" for at in range(99) if partition_of(f"f{at}") == 3][:3]


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    made = Bench(redis_stores(redis_server, clock, publishes_ends=lambda: made.has_listeners), clock)
    return made


async def breaks(server: RedisServer, *commands: tuple[Any, ...]) -> None:
    """Change records by hand."""
    for command in commands:
        await server.connect().execute_command(*command)


async def beside_broken(bench: Bench, server: RedisServer, commands: list[tuple[Any, ...]]) -> ChainState:
    """Begin two runs, change the first one by hand, and return the other."""
    await bench.register(overlap=OverlapPolicy.ALLOW)
    await bench.begun()
    whole = await bench.begun()
    await breaks(server, *commands)
    return whole


CHANGES = [
    [("HSET", RUN, "facts", '["default"')],
    [("HSET", RUN, "facts", "\xff".encode("latin-1"))],
    [("HDEL", RUN, "run_id")],
    [("DEL", RUN), ("SET", RUN, "text")],
]


@pytest.mark.parametrize("commands", CHANGES, ids=["truncated", "undecodable", "incomplete", "another type"])
async def test_broken_run_hides_no_other(
    bench: Bench, redis_server: RedisServer, commands: list[tuple[Any, ...]]
) -> None:
    whole = await beside_broken(bench, redis_server, commands)
    with capture_logs() as logs:
        assert await bench.stores.states.load_many([BROKEN, WHOLE]) == [None, whole]
        assert await bench.stores.states.load_many([BROKEN]) == [None]
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", RUN)]
    with pytest.raises(Unreadable, match=r"cycle:0:0 cannot be read: .*; put it right, remove it, or restore"):
        await bench.stores.states.load(BROKEN)
    assert await bench.stores.cycles.newest("f", None, 5) == [whole]


@pytest.mark.parametrize(
    "commands",
    [
        [("HSET", RUN, "status", "asleep")],
        [("HSET", RUN, "status", b"\xff")],
        [("HSET", RUN, "start_time", "noon")],
        [("DEL", RUN), ("SET", RUN, "text")],
    ],
    ids=["unknown", "undecodable", "no time", "another type"],
)
async def test_run_that_cannot_be_outlined_hides_no_other(
    bench: Bench, redis_server: RedisServer, commands: list[tuple[Any, ...]]
) -> None:
    whole = await beside_broken(bench, redis_server, commands)
    with capture_logs() as logs:
        assert await bench.stores.cycles.outlines("f", None, 5) == [whole.outline]
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", RUN)]
    await breaks(redis_server, ("DEL", RUN))
    assert await bench.stores.cycles.outlines("f", None, 5) == [whole.outline]


async def test_broken_run_is_forgotten_only_when_it_is_no_run(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register(overlap=OverlapPolicy.ALLOW)
    await bench.begun()
    await breaks(redis_server, ("HSET", RUN, "facts", "["))
    await bench.stores.open_runs.forget(BROKEN)
    assert await bench.stores.open_runs.of_flow("f", 5) == [BROKEN]
    await breaks(redis_server, ("DEL", RUN), ("SET", RUN, "text"))
    await bench.stores.open_runs.forget(BROKEN)
    assert await bench.stores.open_runs.of_flow("f", 5) == []


async def test_broken_flow_hides_no_other_in_a_list(bench: Bench, redis_server: RedisServer) -> None:
    for flow_id in ("f", "g", "h"):
        await bench.register(flow_id)
    await breaks(
        redis_server, ("HDEL", KEYS.flow("f"), "config"), ("DEL", KEYS.flow("g")), ("SET", KEYS.flow("g"), "text")
    )
    stores = bench.stores
    with capture_logs() as logs:
        flows, _ = await ReadFlows(stores.flows, stores.cycles, stores.states).flows(FlowFilter(), "", 10)
    assert [flow.flow_id for flow in flows] == ["h"]
    assert sorted(line["what"] for line in logs) == [KEYS.flow("f"), KEYS.flow("g")]
    assert await stores.flows.owners(["f", "g", "h"]) == ["default", None, "default"]
    for flow_id in ("f", "g"):
        with pytest.raises(Unreadable, match=f"flow:{flow_id} cannot be read"):
            await stores.flows.find([flow_id, "h"])


@pytest.mark.parametrize(
    "command",
    [
        ("SET", "text"),
        ("HDEL", "status"),
        ("HSET", "status", "nonsense"),
        ("HSET", "labels", "{"),
        ("HSET", "user_id", b"\xff"),
        ("HDEL", "created_at"),
    ],
    ids=lambda command: " ".join(map(str, command)),
)
async def test_broken_flow_hides_no_other_in_a_list_of_some(
    bench: Bench, redis_server: RedisServer, command: tuple[Any, ...]
) -> None:
    for flow_id in IN_ONE_PARTITION:
        await bench.register(flow_id)
    broken, *others = IN_ONE_PARTITION
    verb, *rest = command
    if verb == "SET":
        await breaks(redis_server, ("DEL", KEYS.flow(broken)))
    await breaks(redis_server, (verb, KEYS.flow(broken), *rest))
    stores = bench.stores
    read = ReadFlows(stores.flows, stores.cycles, stores.states)
    with capture_logs() as logs:
        for limit in (1, 9):
            found, after = list[str](), ""
            for _ in range(9):
                flows, left = await read.flows(FlowFilter(labels={"team": "a"}), after, limit)
                found += [flow.flow_id for flow in flows]
                if left is None:
                    break
                after = left
            assert found == others
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", KEYS.flow(broken))]


@pytest.mark.parametrize("wanted", [FlowFilter(), FlowFilter(labels={"team": "a"})], ids=["all", "some"])
async def test_broken_index_of_flows_hides_no_flow_of_another_partition(
    bench: Bench, redis_server: RedisServer, wanted: FlowFilter
) -> None:
    for flow_id in ("f", "g", "h"):
        await bench.register(flow_id)
    index = KEYS.flows(partition_of("g"))
    await breaks(redis_server, ("DEL", index), ("SET", index, "text"))
    stores = bench.stores
    with capture_logs() as logs:
        flows, left = await ReadFlows(stores.flows, stores.cycles, stores.states).flows(wanted, "", 10)
    assert ([flow.flow_id for flow in flows], left) == (["f", "h"], None)
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", index)]


INDEX = KEYS.cycles("f")


async def test_broken_flow_keeps_no_other_from_being_tidied(bench: Bench, redis_server: RedisServer) -> None:
    for flow_id in IN_ONE_PARTITION:
        await bench.register(flow_id, keep_cycles=1)
        for _ in range(2):
            await bench.end(await bench.begun(bench.request(flow_id)))
    broken, *others = IN_ONE_PARTITION
    index = KEYS.cycles(broken)
    await breaks(redis_server, ("DEL", index), ("SET", index, "text"))
    with capture_logs() as logs:
        step = await bench.stores.cycles.tidy(partition_of(broken), "", 0)
    assert (step.done, step.trimmed) == (True, len(others))
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", KEYS.flow(broken))]


async def test_broken_flow_keeps_no_other_from_beginning(bench: Bench, redis_server: RedisServer) -> None:
    for flow_id in ("f", "g"):
        await bench.register(flow_id)
    await breaks(redis_server, ("SET", INDEX, "text"))
    with capture_logs() as logs:
        answers = await bench.stores.cycles.begin([bench.request("f"), bench.request("g"), bench.request("f")])
    outcomes = [answer.outcome for answer in answers]
    assert outcomes == [BeginOutcome.UNREADABLE, BeginOutcome.BEGUN, BeginOutcome.UNREADABLE]
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", KEYS.flow("f"))]
    assert (await bench.state(RunName("g", 0))).version == 1
    await breaks(redis_server, ("DEL", INDEX))
    assert (await bench.begin(bench.request("f"))).outcome is BeginOutcome.BEGUN


async def test_broken_flow_keeps_no_other_from_ending(bench: Bench, redis_server: RedisServer) -> None:
    for flow_id in ("f", "g", "h"):
        await bench.register(flow_id)
    states = [await bench.begun(bench.request(flow_id)) for flow_id in ("f", "g", "h")]
    for key in (INDEX, KEYS.flow("h")):
        await breaks(redis_server, ("DEL", key), ("SET", key, "text"))
    ended = [structs.replace(state, status=CycleStatus.COMPLETED) for state in states]
    with capture_logs() as logs:
        results = await bench.stores.states.update_many([RunUpdate(state, (STATUS,)) for state in ended[:2]])
    assert [result.outcome for result in results] == [UpdateOutcome.OK, UpdateOutcome.OK]
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", KEYS.flow("f"))]
    for state in states[:2]:
        assert (await bench.state(state.name)).status is CycleStatus.COMPLETED
    assert (await bench.write(ended[2], (STATUS,))).outcome is UpdateOutcome.UNREADABLE


@pytest.mark.parametrize("part", ["cycles", "filling", "queued", "logs:0", "backfills"])
async def test_broken_part_of_a_flow_keeps_no_run_from_ending_together_with_others(
    bench: Bench, redis_server: RedisServer, part: str
) -> None:
    broken, whole, _ = IN_ONE_PARTITION
    for flow_id in (broken, whole):
        await bench.register(flow_id, keep_cycles=1)
        await bench.change_status(FlowStatus.RUNNING, flow_id)
    requests = [bench.request(flow_id, shape=shape(flow_id, keep_cycles=1)) for flow_id in (broken, whole) * 2]
    states = [await bench.begun(request) for request in requests]
    key = f"{KEYS.flow(broken)}:{part}"
    await breaks(redis_server, ("DEL", key), ("SET", key, "text"), ("HSET", KEYS.flow(whole), "next_execution", 0))
    ended, line = CycleStatus.COMPLETED, LogText(LogLevel.INFO, "line")
    updates = [RunUpdate(structs.replace(state, status=ended), (STATUS,), log=line) for state in states]
    results = await bench.stores.states.update_many(updates)
    assert [result.outcome for result in results] == 4 * [UpdateOutcome.OK]
    kept = await bench.stores.states.load_many([state.name for state in states])
    assert {state.status for state in kept if state is not None} == {ended}
    assert (await bench.flow(whole)).status is FlowStatus.COMPLETED
    assert [state.name.cycle for state in await bench.stores.cycles.newest(whole, None, 9)] == [1]


async def test_broken_log_keeps_no_run_from_being_stopped(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register()
    state = await bench.begun()
    await breaks(redis_server, ("SET", KEYS.logs("f", 0), "text"))
    assert (await bench.change_status(FlowStatus.STOPPED)).stopping == (state.name,)
    with pytest.raises(Unreadable, match="logs:0 cannot be read: it is of another type"):
        await bench.log_lines(0)


async def test_unreadable_definition_is_told_apart_from_a_flow_that_is_not_there(
    bench: Bench, redis_server: RedisServer
) -> None:
    whole = read_weather({"interval": 60, "nodes": [{"id": "n", "type": "t"}]}).definition
    assert whole is not None
    for flow_id in ("f", "g"):
        await bench.register(flow_id, config_json=whole.to_json())
    await breaks(redis_server, ("HSET", KEYS.flow("f"), "config", whole.to_json()[:20]))
    loaded = await Definitions(bench.stores.flows).load(["f", "g", "h"])
    assert {flow_id: type(found) for flow_id, found in loaded.items()} == {
        "f": Unreadable,
        "g": PlannedFlow,
        "h": type(None),
    }


async def test_broken_index_of_a_partition_costs_that_partition_only(bench: Bench, redis_server: RedisServer) -> None:
    for flow_id in ("f", "g"):
        await bench.register(flow_id)
        await bench.begun(bench.request(flow_id))
    of_f, of_g = partition_of("f"), partition_of("g")
    await breaks(redis_server, ("DEL", KEYS.open(of_f)), ("SET", KEYS.open(of_f), "text"))
    bench.clock.advance(MINUTE)
    with capture_logs() as logs:
        checks = await bench.stores.open_runs.check([of_f, of_g], 9)
    assert {partition: check.due for partition, check in checks.items()} == {of_f: (), of_g: (RunName("g", 0),)}
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", KEYS.open(of_f))]


async def test_entry_of_an_index_that_names_nothing_hides_no_other(bench: Bench, redis_server: RedisServer) -> None:
    bench.has_listeners = True
    of_f = partition_of("f")
    await bench.register()
    open_run, ended = await bench.begun(), await bench.begun()
    await bench.end(ended)
    backfill_id = await bench.backfill(bench.now - MINUTE, bench.now)
    indexes = [KEYS.open(of_f), KEYS.ends(of_f), KEYS.active_backfills(of_f), KEYS.outbox(of_f), KEYS.queued(of_f)]
    for index in indexes:
        await breaks(redis_server, ("ZADD", index, 0, b"\xff"), ("ZADD", index, 0, "rubbish"))
    bench.clock.advance(MINUTE)
    stores = bench.stores
    with capture_logs() as logs:
        for _ in range(2):
            assert (await stores.open_runs.check([of_f], 9))[of_f].due == (open_run.name,)
            assert [end.run for end in await stores.ends.waiting([of_f], 9)] == [ended.name]
            assert await stores.backfills.active([of_f], 9) == [("f", backfill_id)]
            assert (await stores.outbox.check([of_f], 9))[of_f].due == ("rubbish",)
            assert await stores.firings.waiting([of_f], 9) == ["rubbish"]
    assert {line["event"] for line in logs} == {"record_unreadable"}
    assert sorted(line["what"] for line in logs) == sorted(
        [f"{index} \ufffd" for index in indexes] + [f"{index} rubbish" for index in indexes[:3]]
    )


async def test_entry_of_the_index_of_cycles_that_names_nothing_hides_no_cycle(
    bench: Bench, redis_server: RedisServer
) -> None:
    await bench.register()
    ended, open_run = await bench.begun(), await bench.begun()
    await bench.end(ended)
    for entry in ((1, "rubbish"), (OPEN + 1, b"\xff"), (OPEN + 1, "1")):
        await breaks(redis_server, ("ZADD", INDEX, *entry))
    with capture_logs() as logs:
        assert [state.name for state in await bench.stores.cycles.newest("f", None, 9)] == [open_run.name, ended.name]
        assert await bench.stores.open_runs.of_flow("f", 9) == [open_run.name]
    assert {line["event"] for line in logs} == {"record_unreadable"}
    assert {line["what"] for line in logs} == {f"{INDEX} rubbish", f"{INDEX} \ufffd", f"{INDEX} 1"}
    answer = await bench.change_status(FlowStatus.STOPPED)
    assert answer.stopping == (open_run.name,)
    assert await bench.remove() == 1
    assert await bench.stores.flows.find(["f"]) == [None]


@pytest.mark.parametrize("command", [("SET", "text"), ("HDEL", "status")], ids=lambda each: each[0])
async def test_broken_backfill_hides_no_other(
    bench: Bench, redis_server: RedisServer, command: tuple[Any, ...]
) -> None:
    await bench.register()
    broken, whole = [await bench.backfill(bench.now - MINUTE, bench.now) for _ in range(2)]
    key = KEYS.backfill("f", broken)
    verb, *rest = command
    await breaks(redis_server, *([("DEL", key)] if verb == "SET" else []), (verb, key, *rest))
    await breaks(redis_server, ("ZADD", KEYS.backfills("f"), 0, "rubbish"))
    with capture_logs() as logs:
        assert await bench.stores.backfills.ids("f") == [whole, broken]
        assert await bench.stores.backfills.find("f", [broken, whole]) == [None, await bench.find_backfill(whole)]
    assert [line["what"] for line in logs] == [f"{KEYS.backfills('f')} rubbish", key]
    with pytest.raises(Unreadable, match="backfill:1 cannot be read"):
        await bench.stores.backfills.load("f", broken)


async def test_many_entries_that_name_nothing_hide_none_behind_them(bench: Bench, redis_server: RedisServer) -> None:
    bench.has_listeners = True
    of_f = partition_of("f")
    await bench.register()
    open_run, ended = await bench.begun(), await bench.begun()
    await bench.end(ended)
    backfill_id = await bench.backfill(bench.now - MINUTE, bench.now)
    rubbish = [part for place in range(7) for part in (0, f"rubbish {place}")]
    for index in (KEYS.open(of_f), KEYS.ends(of_f), KEYS.active_backfills(of_f)):
        await breaks(redis_server, ("ZADD", index, *rubbish))
    for least in (0, OPEN):
        entries = [part for place in range(7) for part in (least + 7000, f"rubbish {least} {place}")]
        await breaks(redis_server, ("ZADD", INDEX, *entries))
    bench.clock.advance(MINUTE)
    stores = bench.stores
    assert (await stores.open_runs.check([of_f], 1))[of_f].due == (open_run.name,)
    assert [end.run for end in await stores.ends.waiting([of_f], 3)] == [ended.name]
    assert await stores.backfills.active([of_f], 7) == [("f", backfill_id)]
    assert await stores.open_runs.of_flow("f", 1) == [open_run.name]
    await bench.end(open_run)
    assert [state.name for state in await stores.cycles.newest("f", None, 2)] == [ended.name, open_run.name]


@pytest.mark.parametrize("entry", [b"rubbish", b"\xff", b"1", b"1:0:0"])
async def test_entry_of_the_index_of_cycles_that_names_nothing_keeps_no_run_from_ending(
    bench: Bench, redis_server: RedisServer, entry: bytes
) -> None:
    await bench.register(keep_cycles=1)
    await bench.change_status(FlowStatus.RUNNING)
    shaped = shape(keep_cycles=1)
    states = [await bench.begun(bench.request(shape=shaped)) for _ in range(3)]
    await breaks(redis_server, ("ZADD", INDEX, -1, entry), ("HSET", KEYS.flow("f"), "next_execution", 0))
    with capture_logs() as logs:
        for state in states:
            await bench.end(state)
    assert logs == []
    assert await bench.stores.cycles.newest("f", None, 9) == [await bench.state(states[-1].name)]
    assert (await bench.flow()).status is FlowStatus.COMPLETED
    await breaks(redis_server, ("ZADD", INDEX, -1, entry))
    with capture_logs() as logs:
        step = await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert (logs, step.done, step.forgotten) == ([], True, 1)


@pytest.mark.parametrize("command", [("SET", "text"), ("HSET", "job", "{"), ("HDEL", "job")], ids=lambda each: each[0])
async def test_broken_job_hides_no_other(bench: Bench, redis_server: RedisServer, command: tuple[Any, ...]) -> None:
    jobs = bench.stores.jobs
    wanted = BulkFilter(("f*",), (CycleStatus.FAILED,), 0, bench.now, 7)
    whole, broken = (BulkJob(each, BulkAction.RERUN, wanted, False, "ann", "", bench.now) for each in ("g", "h"))
    for job in (whole, broken):
        await jobs.create(job, "p")
    verb, *rest = command
    await breaks(redis_server, *([("DEL", KEYS.job("h"))] if verb == "SET" else []), (verb, KEYS.job("h"), *rest))
    await breaks(redis_server, ("ZADD", KEYS.jobs(0), 1, b"\xff"), ("SET", KEYS.jobs(partition_of("f")), "text"))
    with capture_logs() as logs:
        assert await jobs.newest(None, 9) == [whole]
    assert {line["event"] for line in logs} == {"record_unreadable"}
    if verb != "HDEL":
        assert KEYS.job("h") in {line["what"] for line in logs}
        with pytest.raises(Unreadable, match="job:h cannot be read"):
            await jobs.find("h")


async def test_keys_of_another_type_that_say_who_owns_what_are_replaced(
    bench: Bench, redis_server: RedisServer
) -> None:
    await bench.register("g")
    of_g = partition_of("g")
    presence = await bench.stores.partitions.report_presence()
    epoch = await bench.stores.partitions.acquire(of_g, presence)
    for key in (KEYS.owner(of_g), KEYS.replicas()):
        await breaks(redis_server, ("DEL", key), ("SET", key, "text"))
    (answer,) = await bench.stores.cycles.begin([bench.request("g")], {of_g: epoch})
    assert answer.outcome is BeginOutcome.OVERTAKEN
    again = await bench.stores.partitions.report_presence()
    assert again.replicas == presence.replicas
    bench.clock.advance(1)
    later = await bench.stores.partitions.acquire(of_g, again)
    assert later > epoch
    (answer,) = await bench.stores.cycles.begin([bench.request("g")], {of_g: later})
    assert answer.outcome is BeginOutcome.BEGUN
