"""Queues and limits over a real channel: counts, refusals and waits."""

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.rpc.node_task_manager.test_ad_hoc import submit_task
from tests.rpc.node_task_manager.test_bad_input import faults
from tests.rpc.node_task_manager.test_calls import claim, complete, reason_of
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import cache_pb2, component_pb2, config_pb2, node_task_pb2, queue_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

THREE = plan(nodes="a b c")


async def test_queue_statistics_count_queued_running_and_ended(ntm: Ntm) -> None:
    await ntm.submit(THREE)
    await ntm.submit(THREE, flow_id="other", user_id="ann")
    tokens = [each.token for each in await claim(ntm, 4)]
    await complete(ntm, *tokens[:2])
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="it broke")
    failure = work_pb2.NodeTaskFailure(token=tokens[2], error=error)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
    found = await ntm.stub.GetQueueStats(queue_pb2.GetQueueStatsRequest())
    assert (found.queued, found.running, found.completed, found.failed) == (2, 1, 2, 1)
    assert found.failed_by_code == {"NODE_ERROR": 1}
    assert sum(depth.queued for depth in found.queues) == 2
    assert found.first_ready_at.seconds > 0
    ann = await ntm.stub.GetQueueStats(queue_pb2.GetQueueStatsRequest(user_id="ann", node_type="noop"))
    assert {depth.user_id for depth in ann.queues} == {"ann"}
    nobody = await ntm.stub.GetQueueStats(queue_pb2.GetQueueStatsRequest(user_id="nobody"))
    assert (len(nobody.queues), nobody.queued, nobody.running) == (0, 0, 0)


async def test_running_ad_hoc_task_is_counted_without_its_plan(start: Start, embedded: RedisServer) -> None:
    here, there = await start(), await start()
    await submit_task(here)
    assert len(await claim(here)) == 1
    (plan_key,) = [key for key in await embedded.keys() if ":plan:" in key]
    try:
        await embedded.connect().delete(plan_key)
    finally:
        await embedded.close_clients()
    (depth,) = (await there.stub.GetQueueStats(queue_pb2.GetQueueStatsRequest())).queues
    assert (depth.node_type, depth.user_id, depth.running) == ("noop", "ann", 1)


async def test_faults_of_a_statistics_request_are_named(ntm: Ntm) -> None:
    wrong = queue_pb2.GetQueueStatsRequest(user_id="a b", node_type=":")
    assert await faults(ntm.stub.GetQueueStats(wrong)) == ["user_id", "node_type"]


async def test_a_priority_out_of_range_is_refused(ntm: Ntm) -> None:
    wrong = plan(nodes="a b")
    wrong.nodes[1].priority = 6
    run = component_pb2.RunSubmission(flow_id="f", run_id="r", user_id="u")
    run.components.add(component_id="0", plan_digest=wrong.digest)
    request = pb2.SubmitComponentsRequest(runs=[run], plans=[wrong])
    assert await faults(ntm.stub.SubmitComponents(request)) == ["plans[0].nodes[1].priority"]


def limits_of(config: config_pb2.SystemConfig) -> config_pb2.SystemConfig:
    """Return a configuration without its cache settings, which must be the defaults."""
    assert (config.enable_cache, config.cache_ttl.seconds, sorted(config.caches)) == (
        True,
        3600,
        ["analysis", "screening"],
    )
    for name in ("enable_cache", "cache_ttl", "caches"):
        config.ClearField(name)
    return config


async def configure(ntm: Ntm, etag: str = "", **fields: object) -> config_pb2.UpdateConfigResponse:
    config = config_pb2.SystemConfig(**fields)  # type: ignore[arg-type]
    mask = FieldMask(paths=list(fields))
    return await ntm.stub.UpdateConfig(config_pb2.UpdateConfigRequest(config=config, update_mask=mask, etag=etag))


async def test_configuration_is_updated_by_field_and_guarded_by_etag(ntm: Ntm) -> None:
    first = await ntm.stub.GetConfig(config_pb2.GetConfigRequest())
    assert (limits_of(first.config), first.etag) == (config_pb2.SystemConfig(), "v0")
    changed = await configure(ntm, first.etag, max_running=7, user_weights={"ann": 2.0})
    assert (changed.config.max_running, changed.config.user_weights["ann"], changed.etag) == (7, 2.0, "v1")
    changed = await configure(ntm, max_running_per_user=3)
    assert (changed.config.max_running, changed.config.max_running_per_user) == (7, 3)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await configure(ntm, first.etag, max_running=1)
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.ABORTED, "VERSION_CONFLICT")
    assert (await ntm.stub.GetConfig(config_pb2.GetConfigRequest())).config.max_running == 7


async def test_invalid_configuration_reports_every_fault_and_changes_nothing(ntm: Ntm) -> None:
    wrong = config_pb2.UpdateConfigRequest(
        config=config_pb2.SystemConfig(
            max_running=-1,
            max_running_per_user=5,
            max_running_per_node_type={"noop": 0},
            user_weights={"ann": 0.0, "bob": float("nan")},
            rates={"noop": "100/y"},
        ),
        update_mask=FieldMask(paths=["max_runing"]),
        etag="x",
    )
    assert sorted(await faults(ntm.stub.UpdateConfig(wrong))) == [
        "config.max_running",
        "config.max_running_per_node_type[noop]",
        "config.rates[noop]",
        "config.user_weights[ann]",
        "config.user_weights[bob]",
        "etag",
        "update_mask.paths[0]",
    ]
    assert limits_of((await ntm.stub.GetConfig(config_pb2.GetConfigRequest())).config) == config_pb2.SystemConfig()


@pytest.mark.parametrize("etag", ["v", "v-1", "v1 ", "v²", "v" + "9" * 5000])
async def test_text_that_is_no_etag_of_a_configuration_is_refused(ntm: Ntm, etag: str) -> None:
    assert await faults(configure(ntm, etag, max_running=7)) == ["etag"]


async def test_request_without_a_configuration_lifts_no_limit(ntm: Ntm) -> None:
    await configure(ntm, max_running=7)
    assert await faults(ntm.stub.UpdateConfig(config_pb2.UpdateConfigRequest())) == ["config"]
    assert (await ntm.stub.GetConfig(config_pb2.GetConfigRequest())).config.max_running == 7
    # A mask without a configuration sets its fields to their defaults; an empty configuration does so with all.
    request = config_pb2.UpdateConfigRequest(update_mask=FieldMask(paths=["max_running"]))
    assert (await ntm.stub.UpdateConfig(request)).config.max_running == 0
    await configure(ntm, max_running=7)
    request = config_pb2.UpdateConfigRequest(config=config_pb2.SystemConfig())
    assert (await ntm.stub.UpdateConfig(request)).config.max_running == 0


async def test_repeated_update_of_the_configuration_is_no_conflict(ntm: Ntm) -> None:
    caches = {"quotes": cache_pb2.CacheSettings(max_entries=10)}
    changed = await configure(ntm, "v0", max_running=7, user_weights={"ann": 0.3}, rates={"t": "5/m"}, caches=caches)
    again = await configure(ntm, "v0", max_running=7, user_weights={"ann": 0.3}, rates={"t": "5/m"}, caches=caches)
    assert again == changed


async def test_a_limit_cannot_be_below_the_number_of_shards(start: Start) -> None:
    ntm = await start(node_task_manager_shards=4)
    assert await faults(configure(ntm, max_running=3)) == ["config.max_running"]
    assert (await configure(ntm, max_running=4)).config.max_running == 4


async def test_fields_outside_the_mask_are_ignored(start: Start) -> None:
    ntm = await start(node_task_manager_shards=4)
    given = config_pb2.SystemConfig(max_running=4, max_running_per_flow=-1, rates={"noop": "3/m"}, caches={"": {}})  # type: ignore[dict-item]
    request = config_pb2.UpdateConfigRequest(config=given, update_mask=FieldMask(paths=["max_running"]))
    assert limits_of((await ntm.stub.UpdateConfig(request)).config) == config_pb2.SystemConfig(max_running=4)


async def test_limit_change_reaches_every_replica_and_is_reported_as_reason(start: Start) -> None:
    here, there = await start(), await start()
    await configure(here, max_running_per_user=1)

    async def known() -> bool:
        return (await there.stub.GetConfig(config_pb2.GetConfigRequest())).config.max_running_per_user == 1

    assert await known()
    await there.submit(THREE)
    assert len(await claim(there)) == 1
    assert await claim(here) == []
    waiting = [await here.node(name) for name in "abc"]
    assert [each.reason for each in waiting if each.status == node_task_pb2.NODE_TASK_STATUS_PENDING] == [
        'waits: the limit on running node tasks of user "default" is reached'
    ] * 2
    await configure(here, max_running_per_user=0)
    assert len(await claim(here)) == 2


async def test_invalid_concurrency_and_rate_of_nodes_are_refused(ntm: Ntm) -> None:
    wrong = plan(nodes="a b c", max_running=-1)
    wrong.nodes[0].concurrency.CopyFrom(node_task_pb2.Concurrency(key="a b", max=1))
    wrong.nodes[1].concurrency.CopyFrom(node_task_pb2.Concurrency(key="k", max=0))
    wrong.nodes[2].concurrency.CopyFrom(node_task_pb2.Concurrency(key="k", max=1, when_full=9))  # type: ignore[arg-type]
    wrong.nodes[0].rate.CopyFrom(node_task_pb2.KeyRate(key="a b", limit="5/s", cost=-1))
    wrong.nodes[1].rate.CopyFrom(node_task_pb2.KeyRate(key="k", limit="5 a second"))
    wrong.nodes[2].rate.CopyFrom(node_task_pb2.KeyRate(key="k", limit="5/s", cost=6))
    run = component_pb2.RunSubmission(flow_id="f", run_id="r", user_id="u")
    run.components.add(component_id="0", plan_digest=wrong.digest)
    request = pb2.SubmitComponentsRequest(runs=[run], plans=[wrong])
    assert await faults(ntm.stub.SubmitComponents(request)) == [
        "plans[0].max_running",
        "plans[0].nodes[0].concurrency.key",
        "plans[0].nodes[0].rate.key",
        "plans[0].nodes[0].rate.cost",
        "plans[0].nodes[1].concurrency.max",
        "plans[0].nodes[1].rate.limit",
        "plans[0].nodes[2].concurrency.when_full",
        "plans[0].nodes[2].rate.cost",
    ]


async def test_next_node_of_a_concurrency_key_starts_when_the_previous_ends(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    bound = plan(nodes="a b c", digest="bound")
    for node in bound.nodes:
        node.concurrency.CopyFrom(node_task_pb2.Concurrency(key="k", max=1))
    one, other = worker("w1"), worker("w2", capacity=1)
    await one.open()
    await other.open()
    await ntm.submit(bound)
    done: set[str] = set()
    for count in range(1, 4):
        await until(lambda: len(one.assignments) + len(other.assignments) == len(done) + 1, f"{count} were given out")
        assert [(await ntm.node(name)).status for name in "abc"].count(node_task_pb2.NODE_TASK_STATUS_RUNNING) == 1
        for each in (one, other):
            if each.assignments and each.assignments[-1].token not in done:
                done.add(each.assignments[-1].token)
                await each.complete(each.assignments[-1].token, out="1")


async def test_rate_limited_nodes_start_when_allowed_and_report_the_limit(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    await configure(ntm, rates={"noop": "5/s"})
    many = plan(nodes=" ".join(f"n{at}" for at in range(8)), digest="many")
    one = worker("w1")
    await one.open()
    await ntm.submit(many)
    await one.assigned(8)
    await configure(ntm, rates={"noop": "1/h"})
    await ntm.submit(plan(nodes="x y", digest="late"), flow_id="late")

    async def explained() -> bool:
        requests = [pb2.GetNodeTaskRequest(node_task_id=f"late:0:0:{name}", user_id="default") for name in "xy"]
        reasons = [(await ntm.stub.GetNodeTask(each)).node_task.reason for each in requests]
        return 'waits: the rate limit of node type "noop" is reached' in reasons

    await until(explained, "one that waits says why")
