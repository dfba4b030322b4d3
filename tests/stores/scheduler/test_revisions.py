"""Revisions of flows: who made them, how long they are kept, and changes based only on what was read."""

from tests.stores.scheduler.bench import Bench, request_of, shape
from tradewind.scheduler.domain.flow_record import RegisterOutcome
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.revision import KEPT_REVISIONS, Revision


async def numbers(bench: Bench) -> list[int]:
    return [each.number for each in await bench.stores.revisions.newest("f", 0, 1000)]


async def test_revisions_record_author_time_and_note(bench: Bench) -> None:
    await bench.register(by="ada")
    first = bench.now
    bench.clock.advance(1000)
    await bench.register(digest="d2", by="eve", note="faster ü", labels=(("team", "b"), ("x", "y")))
    expected = [
        Revision(2, first + 1000, "eve", "faster ü", "d2", (("team", "b"), ("x", "y"))),
        Revision(1, first, "ada", "", "d1", (("team", "a"),)),
    ]
    assert await bench.stores.revisions.newest("f", 0, 10) == expected
    assert await bench.stores.revisions.newest("f", 0, 1) == expected[:1]
    assert await bench.stores.revisions.newest("f", 2, 10) == expected[1:]
    assert await bench.stores.revisions.newest("f", 1, 10) == []
    assert await bench.stores.revisions.newest("nobody", 0, 10) == []


async def test_unchanged_definition_creates_no_revision(bench: Bench) -> None:
    await bench.register()
    await bench.register(by="eve", note="again")
    assert [each.by for each in await bench.stores.revisions.newest("f", 0, 10)] == ["user"]


async def test_revisions_count_their_open_runs(bench: Bench) -> None:
    await bench.register()
    first = await bench.begun()
    await bench.begun()
    await bench.register(digest="d2")
    await bench.register(digest="d3")
    await bench.change_status(FlowStatus.STOPPED)
    third = await bench.flow()
    await bench.begun(bench.request(shape=shape(revision=third.revision)))

    async def counts() -> list[int]:
        return [each.open_runs for each in await bench.stores.revisions.newest("f", 0, 10)]

    assert await counts() == [1, 0, 2]
    await bench.end(await bench.state(first.name))
    assert await counts() == [1, 0, 1]


async def test_newest_revisions_and_those_of_open_runs_are_kept(bench: Bench) -> None:
    await bench.register(config_json="c1")
    first = await bench.begun()
    await bench.register(digest="d2", config_json="c2")
    second = await bench.begun(bench.request(shape=shape(revision=2)))
    await bench.change_status(FlowStatus.STOPPED)
    for number in range(3, KEPT_REVISIONS + 4):
        await bench.register(digest=f"d{number}", config_json=f"c{number}")
    latest = KEPT_REVISIONS + 3
    assert await numbers(bench) == [*range(latest, 3, -1), 2, 1]
    assert await bench.stores.flows.definition("f", 1) == "c1"
    assert await bench.stores.flows.definition("f", 3) is None
    for state in (first, second):
        await bench.end(await bench.state(state.name))
    await bench.register(digest="last")
    assert await numbers(bench) == [*range(latest + 1, 4, -1)]
    assert await bench.stores.flows.definition("f", 1) is None


async def test_registration_with_an_outdated_etag_is_refused(bench: Bench) -> None:
    assert await bench.register(etag="5-1") == (RegisterOutcome.NOT_FOUND, 0)
    await bench.register()
    read = (await bench.flow()).etag
    await bench.end(await bench.begun())
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.flow()).etag == read
    assert await bench.register(digest="d2", etag=read) == (RegisterOutcome.CHANGED, 2)
    before = await bench.flow()
    assert await bench.register(digest="d3", etag=read) == (RegisterOutcome.MOVED, 2)
    assert await bench.register(digest="d2", etag=read) == (RegisterOutcome.MOVED, 2)
    assert await bench.flow() == before
    assert await bench.register(digest="d2", etag=before.etag) == (RegisterOutcome.SAME, 2)


async def test_repeated_request_is_answered_despite_an_outdated_etag(bench: Bench) -> None:
    await bench.register()
    read, request = (await bench.flow()).etag, request_of("r1")
    assert await bench.register(digest="d2", etag=read, request=request) == (RegisterOutcome.CHANGED, 2)
    assert await bench.register(digest="d2", etag=read, request=request) == (RegisterOutcome.REPEATED, 2)


async def test_etag_of_a_deleted_flow_is_refused(bench: Bench) -> None:
    await bench.register()
    read = (await bench.flow()).etag
    bench.clock.advance(1)
    await bench.remove()
    await bench.register()
    assert (await bench.flow()).revision == 1
    assert await bench.register(digest="d2", etag=read) == (RegisterOutcome.MOVED, 1)
