"""Caches over a real channel: answers, faults, statistics, and a separate store that evicts or is away."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, Start, plan
from tests.rpc.node_task_manager.test_ad_hoc import get_batch, refused, submit_batch, submit_task
from tests.rpc.node_task_manager.test_queues import configure
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import cache_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as service_pb2
from tradewind.node_task_manager.stores.keys import CACHE_ACL
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore

SCREENING = {"cache": {"name": "screening"}}
COMPLETED = node_task_pb2.NODE_TASK_STATUS_COMPLETED
Workers = Any


async def ended(ntm: Ntm, task_id: str) -> node_task_pb2.NodeTask:
    """Wait until an ad-hoc task has completed, and return it."""
    request = batch_pb2.GetTaskRequest(task_id=task_id, user_id="ann", include_outputs=True)
    found: list[node_task_pb2.NodeTask] = []

    async def completed() -> bool:
        found[:] = [(await ntm.stub.GetTask(request)).task]
        return found[0].status == COMPLETED

    await until(completed, f"{task_id} has completed")
    return found[0]


async def stats(ntm: Ntm, name: str = "screening") -> pb2.CacheStats:
    return (await ntm.stub.GetCacheStats(pb2.GetCacheStatsRequest(name=name))).caches[0]


async def filled(ntm: Ntm, count: int = 1) -> None:
    """Wait until at least `count` results have been put in."""

    async def are() -> bool:
        return (await stats(ntm)).fills >= count

    await until(are, f"{count} results were put in")


async def test_repeated_task_is_answered_from_the_cache(ntm: Ntm, worker: Workers) -> None:
    w1: RawWorker = worker()
    await w1.open()
    first = (await submit_task(ntm, options=SCREENING)).task.node_task_id
    (given,) = await w1.assigned()
    await w1.complete(given.token, out="[1]")
    await filled(ntm)
    second = await ended(ntm, (await submit_task(ntm, options=SCREENING)).task.node_task_id)
    assert (second.cached_in, second.outputs[0].value_json, second.worker_id) == ("screening", "[1]", "")
    assert ((await ended(ntm, first)).cached_in, len(w1.assignments)) == ("", 1)
    # Other users do not see the result, and another scope is another result.
    await submit_task(ntm, options=SCREENING, user_id="bob")
    await submit_task(ntm, options={"cache": {"name": "screening", "scope": "CACHE_SCOPE_GLOBAL"}})
    assert len(await w1.assigned(3)) == 3


async def test_batch_counts_items_answered_from_the_cache(ntm: Ntm, worker: Workers) -> None:
    w1: RawWorker = worker()
    await w1.open()
    parameters = ['{"x":1}', '{"x":2}', '{"x":1}']
    batch = (await submit_batch(ntm, parameters, options=SCREENING)).batch
    for given in list(await w1.assigned(2)):
        await w1.complete(given.token, out="1")

    async def done() -> bool:
        progress = (await get_batch(ntm, batch.batch_id)).batch.progress
        return (progress.completed, progress.cached) == (3, 1)

    await until(done, "the batch has ended, one of it from the cache")
    assert len(w1.assignments) == 2


async def test_result_after_a_wait_is_not_cached(ntm: Ntm, worker: Workers) -> None:
    w1: RawWorker = worker()
    await w1.open()
    first = (await submit_task(ntm, options=SCREENING)).task.node_task_id
    (given,) = await w1.assigned()
    wait = work_pb2.WaitOrder(delay=Duration(nanos=20_000_000))
    await w1.acknowledged(await w1.send(completions=[work_pb2.NodeTaskCompletion(token=given.token, wait=wait)]))
    (_, again) = await w1.assigned(2)
    await w1.complete(again.token, out="[1]")
    assert (await ended(ntm, first)).attempt == 2
    # Nobody waits for the task that waited, nor takes its result: the result depends on what ended its wait.
    second = (await submit_task(ntm, options=SCREENING)).task.node_task_id
    (*_, other) = await w1.assigned(3)
    await w1.complete(other.token, out="[2]")
    await filled(ntm)
    assert (await ended(ntm, second)).outputs[0].value_json == "[2]"
    assert (await stats(ntm)).fills == 1


async def test_task_waiting_for_same_work_reports_it(ntm: Ntm, worker: Workers) -> None:
    w1: RawWorker = worker()
    await w1.open()
    await submit_task(ntm, options=SCREENING)
    await w1.assigned()
    waiting = (await submit_task(ntm, options=SCREENING)).task.node_task_id
    request = batch_pb2.GetTaskRequest(task_id=waiting, user_id="ann")

    async def waits() -> bool:
        task = (await ntm.stub.GetTask(request)).task
        return "another node task that does the same work" in task.reason and not task.HasField("retry_at")

    await until(waits, "the reason is told")
    await w1.complete(w1.assignments[0].token, out="1")
    assert (await ended(ntm, waiting)).cached_in == "screening"


async def test_flow_nodes_share_cached_results(ntm: Ntm, worker: Workers) -> None:
    w1: RawWorker = worker()
    await w1.open()
    parts = plan(("a", "out", "b", "in"), digest="cached")
    for node in parts.nodes:
        node.cache.name = "analysis"
    await ntm.submit(parts)
    await w1.complete((await w1.assigned(1))[0].token, out='{"k":1}')
    await w1.complete((await w1.assigned(2))[1].token, out="2")

    async def both_filled() -> bool:
        return (await stats(ntm, "analysis")).fills == 2

    await until(both_filled, "both results are there")
    await ntm.submit(parts, cycle=1, run_id="r1")
    request = service_pb2.ListNodeTasksRequest(flow_id="flow", cycle=1, user_id="default")

    async def answered() -> bool:
        tasks = (await ntm.stub.ListNodeTasks(request)).node_tasks
        return [task.cached_in for task in tasks] == ["analysis", "analysis"]

    await until(answered, "both come from the cache")
    # Other inputs mean other work.
    await ntm.submit(parts, cycle=2, run_id="r2", inputs_json='{"x":1}')
    await w1.complete((await w1.assigned(3))[2].token, out='{"k":2}')
    assert (await w1.assigned(4))[3].node_id == "b"


async def test_two_replicas_share_flights_and_results(start: Start, worker: Workers) -> None:
    here, there = await start(), await start()
    w1, w2 = worker("w1", here, capacity=1), worker("w2", there, capacity=1)
    for each in (w1, w2):
        await each.open()
    tasks = [(await submit_task(ntm, options=SCREENING)).task.node_task_id for ntm in (here, there) * 5]
    await until(lambda: w1.assignments or w2.assignments, "one runs")

    async def others_wait() -> bool:
        request = batch_pb2.ListTasksRequest(user_id="ann", statuses=[node_task_pb2.NODE_TASK_STATUS_PENDING])
        found = (await here.stub.ListTasks(request)).tasks
        return sum("does the same work" in task.reason for task in found) == 9

    await until(others_wait, "nine wait for it")
    busy = w1 if w1.assignments else w2
    await busy.complete(busy.assignments[0].token, out="5")
    assert sorted([(await ended(here, task)).cached_in for task in tasks]) == ["", *["screening"] * 9]
    assert len(w1.assignments) + len(w2.assignments) == 1


async def test_workers_without_streams_use_the_cache(ntm: Ntm) -> None:
    claim = service_pb2.ClaimNodeTasksRequest(worker_id="u1", node_types=["noop"], limit=5)
    await submit_task(ntm, options=SCREENING)
    await submit_task(ntm, options=SCREENING)
    (given,) = (await ntm.stub.ClaimNodeTasks(claim)).assignments
    assert not (await ntm.stub.ClaimNodeTasks(claim)).assignments
    renewal = service_pb2.RenewLeasesRequest(worker_id="u1", tokens=[given.token])
    assert not (await ntm.stub.RenewLeases(renewal)).losses
    completion = work_pb2.NodeTaskCompletion(token=given.token, outputs=[{"handle": "out", "value_json": "1"}])  # type: ignore[list-item]
    await ntm.stub.CompleteNodeTasks(service_pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[completion]))
    await filled(ntm)

    async def answered() -> bool:
        await ntm.stub.ClaimNodeTasks(claim)
        return (await stats(ntm)).hits == 1

    await until(answered, "the second is answered")
    offers = [{"node_type": "noop", "version": "2", "cache": {"name": "screening"}}]
    claim = service_pb2.ClaimNodeTasksRequest(worker_id="u1", node_types=["noop"], offers=offers)  # type: ignore[arg-type]
    await submit_task(ntm)
    assert len((await ntm.stub.ClaimNodeTasks(claim)).assignments) == 1
    await submit_task(ntm)
    assert not (await ntm.stub.ClaimNodeTasks(claim)).assignments


async def test_cache_faults_are_named_and_nothing_is_stored(ntm: Ntm) -> None:
    async def faults(**cache: Any) -> list[str]:
        code, reason, paths = await refused(submit_task(ntm, options={"cache": cache}))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
        return paths

    assert await faults(name="screning") == ["options.cache.name"]
    assert await faults(name="a b", key="k" * 257, scope=7, ttl=Duration(nanos=5)) == [
        "options.cache.name",
        "options.cache.key",
        "options.cache.scope",
        "options.cache.ttl",
    ]
    assert await faults(name="screening", scope="CACHE_SCOPE_FLOW") == ["options.cache.scope"]
    wrong = {"cache": {"name": "screning", "key": "k"}}
    _, _, paths = await refused(submit_batch(ntm, ["{}"], total=0, options=wrong))
    assert paths == ["head.options.cache.name", "head.options.cache.key", "head.total"]
    with pytest.raises(grpc.aio.AioRpcError, match="there are analysis, screening; add it with"):
        await submit_task(ntm, options={"cache": {"name": "screning"}})
    large = '{"x":"' + "x" * 256 * 1024 + '"}'
    _, _, paths = await refused(submit_task(ntm, parameters_json=large, options={"cache": {"name": "none"}}))
    assert paths == ["parameters_json", "options.cache.name"] or paths == ["options.cache.name", "parameters_json"]
    parts = plan(nodes="a")
    parts.nodes[0].cache.name = "a b"
    run = {"flow_id": "f", "run_id": "r", "user_id": "u"}
    request = service_pb2.SubmitComponentsRequest(runs=[{**run, "components": [{"component_id": "0"}]}], plans=[parts])  # type: ignore[list-item]
    _, _, paths = await refused(ntm.stub.SubmitComponents(request))
    assert "plans[0].nodes[0].cache.name" in paths
    for name in ("nothing", "a b"):
        assert (await refused(ntm.stub.ClearCache(pb2.ClearCacheRequest(name=name))))[2] == ["name"]
    assert (await refused(ntm.stub.GetCacheStats(pb2.GetCacheStatsRequest(name="nothing"))))[2] == ["name"]
    listed = await ntm.stub.ListTasks(batch_pb2.ListTasksRequest(user_id="ann"))
    assert not listed.tasks


async def test_caches_are_configured_at_runtime(start: Start) -> None:
    here, there = await start(), await start()
    changed = await configure(here, caches={"mine": {"ttl": Duration(seconds=90), "max_entries": 7}})
    assert (changed.config.caches["mine"].ttl.seconds, changed.config.caches["mine"].max_entries) == (90, 7)
    # The other replica knows the cache at once, although nobody has told it yet.
    assert (await submit_task(there, options={"cache": {"name": "mine"}})).task.node_task_id
    await configure(here, cache_ttl=Duration(seconds=60), enable_cache=False)
    answer = await here.stub.GetCacheStats(pb2.GetCacheStatsRequest())
    assert [(each.name, each.ttl.seconds) for each in answer.caches] == [
        ("analysis", 7200),
        ("mine", 90),
        ("screening", 3600),
    ]
    assert not answer.enabled
    wrong = configure(here, cache_ttl=Duration(), caches={"a b": {"ttl": Duration(seconds=-1), "max_entries": -1}})
    assert (await refused(wrong))[2] == [
        "config.cache_ttl",
        "config.caches[a b]",
        "config.caches[a b].ttl",
        "config.caches[a b].max_entries",
    ]


async def test_task_runs_again_after_cache_is_cleared(ntm: Ntm, worker: Workers) -> None:
    w1: RawWorker = worker()
    await w1.open()
    for count in (1, 2):
        await submit_task(ntm, options=SCREENING)
        given = (await w1.assigned(count))[-1]
        await w1.complete(given.token, out="1")
        await filled(ntm, count)
        assert (await stats(ntm)).entries == 1
        assert (await ntm.stub.ClearCache(pb2.ClearCacheRequest(name="screening"))).removed == 1
    assert (await stats(ntm)).entries == 0


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    """A small store only for caches, which evicts."""
    options = ["--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru"]
    store = EmbeddedStore(tmp_path / "cache", acl_users=[CACHE_ACL], options=options)
    await store.start()
    yield store
    await store.stop()


async def commands(store: EmbeddedStore) -> int:
    """Return the number of cache commands that a store has received."""
    client = connect(store.url_for(ADMIN), max_connections=1)
    try:
        found = await client.info("commandstats")
    finally:
        await client.end()
    return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("fcall", "get", "set"))


async def test_results_stay_right_when_a_separate_cache_store_evicts(
    start: Start, own: EmbeddedStore, worker: Workers
) -> None:
    """Three times the store's capacity goes through it: all results are right, though some have been evicted."""
    ntm = await start(cache_url=own.url_for(CACHE_ACL.name))
    w1: RawWorker = worker("w1", ntm, capacity=1)
    await w1.open()
    # A task that does not ask for a cache costs the cache nothing.
    await submit_task(ntm)
    await w1.complete((await w1.assigned(1))[0].token, out="1")
    assert await commands(own) == 0
    value = '"' + "x" * 200_000 + '"'
    for at in range(120):
        await submit_task(ntm, parameters_json=f'{{"x":{at}}}', options=SCREENING)
        given = (await w1.assigned(at + 2))[-1]
        await w1.complete(given.token, out=value)
    await until(lambda: len(w1.assignments) == 121, "all have run")
    before = len(w1.assignments)

    async def ask(at: int) -> None:
        known = len(w1.assignments)
        task = (await submit_task(ntm, parameters_json=f'{{"x":{at}}}', options=SCREENING)).task

        async def answered_or_given() -> bool:
            request = batch_pb2.GetTaskRequest(task_id=task.node_task_id, user_id="ann")
            return (await ntm.stub.GetTask(request)).task.status == COMPLETED or len(w1.assignments) > known

        await until(answered_or_given, "it is answered, or runs")
        if len(w1.assignments) > known:
            await w1.complete(w1.assignments[-1].token, out=value)
        assert (await ended(ntm, task.node_task_id)).outputs[0].value_json == value

    asked = list(range(119, 99, -1))
    for at in asked:
        await ask(at)
    # The store decides which results to evict; one that is asked for repeatedly stays in the end.
    while not (await stats(ntm)).hits and len(asked) < 100:
        asked.append(119)
        await ask(119)
    counted = await stats(ntm)
    assert counted.hits == len(asked) - (len(w1.assignments) - before)
    assert counted.hits > 0


async def test_tasks_continue_when_the_cache_store_dies(start: Start, own: EmbeddedStore, worker: Workers) -> None:
    ntm = await start(cache_url=own.url_for(CACHE_ACL.name))
    w1: RawWorker = worker("w1", ntm)
    await w1.open()
    await submit_task(ntm, options=SCREENING)
    await w1.complete((await w1.assigned(1))[0].token, out="1")
    await filled(ntm)
    await own.stop()
    for count in range(2, 12):
        await submit_task(ntm, options=SCREENING)
        await w1.complete((await w1.assigned(count))[-1].token, out="1")
    code, reason, _ = await refused(ntm.stub.ClearCache(pb2.ClearCacheRequest(name="screening")))
    assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    await own.start()

    async def used_again() -> bool:
        known = len(w1.assignments)
        task = (await submit_task(ntm, options=SCREENING)).task.node_task_id
        request = batch_pb2.GetTaskRequest(task_id=task, user_id="ann")

        async def settled() -> bool:
            return (await ntm.stub.GetTask(request)).task.status == COMPLETED or len(w1.assignments) > known

        await until(settled, "it is answered, or runs")
        if len(w1.assignments) > known:
            await w1.complete(w1.assignments[-1].token, out="1")
        return bool((await ntm.stub.GetTask(request)).task.cached_in)

    await until(used_again, "the cache is used again", timeout=30)


async def test_worker_is_warned_of_unknown_cache(ntm: Ntm, worker: Any) -> None:
    w = worker()
    w.cache = {"name": "embeddngs"}
    await w.open()
    (warning,) = w.responses[0].welcome.warnings
    assert warning.startswith('node type "noop" runs without a cache: no cache "embeddngs"; there are analysis, ')
    assert warning.endswith("tradewind config set caches.embeddngs=1h")
