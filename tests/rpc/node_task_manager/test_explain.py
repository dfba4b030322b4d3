"""ExplainNodeTask: each reason, in a state that the test has brought about."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict

from tests.no_writes import REFUSALS, refusing_writes
from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.rpc.node_task_manager.explanations import CHAIN, Explanation, codes, explained, fail
from tests.rpc.node_task_manager.test_ad_hoc import submit_task
from tests.rpc.node_task_manager.test_calls import claim, complete
from tests.rpc.node_task_manager.test_queues import configure
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, explanation_pb2, node_task_pb2, retry_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2


def retried() -> component_pb2.Plan:
    made = plan(nodes="a", digest="retried")
    made.nodes[0].retry.CopyFrom(retry_pb2.RetryPolicy(attempts=3, initial=Duration(seconds=3600)))
    return made


async def test_waiting_node_names_its_predecessor_and_status(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    ((code, text, facts),) = await explained(ntm, "b")
    assert (code, facts) == ("waits_for_node", {"nodes": [{"node_id": "a", "status": "pending"}]})
    assert text == 'waits for node "a", which is pending'


async def test_nodes_of_withheld_component_wait_for_other_components(ntm: Ntm) -> None:
    withheld = plan(("x", "out", "y", "in"), nodes="x", digest="withheld")
    parts = [
        component_pb2.ComponentSubmission(component_id="0", plan_digest=CHAIN.digest),
        component_pb2.ComponentSubmission(component_id="1", plan_digest=withheld.digest, withheld=True),
    ]
    run = component_pb2.RunSubmission(flow_id="flow", run_id="r0", user_id="default", components=parts)
    await ntm.stub.SubmitComponents(pb2.SubmitComponentsRequest(runs=[run], plans=[CHAIN, withheld]))
    text = "waits until all other components of its cycle have ended"
    for name in "xy":
        assert await explained(ntm, name) == [("withheld", text, {"cycle": 0})]


async def test_queued_node_has_a_position(ntm: Ntm) -> None:
    await ntm.submit(plan(nodes="a b c"))
    await ntm.submit(plan(nodes="x", digest="p2"), flow_id="other", user_id="ann")
    found = [(await explained(ntm, name))[-1] for name in "abc"]
    assert [code for code, _, _ in found] == ["queued"] * 3
    assert sorted(facts["position"] for _, _, facts in found) == [1, 2, 3]
    assert {(facts["queued"], facts["other_users"]) for _, _, facts in found} == {(3, 1)}
    assert "takes turns with 1 other user" in found[0][1]


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"max_running_per_user": 1}, "user:default"),
        ({"max_running": 1}, "running"),
        ({"max_running_per_node_type": {"noop": 1}}, "type:noop"),
        ({"max_running_per_flow": 1}, "flow:flow"),
    ],
)
async def test_full_limit_is_explained_with_its_holders(ntm: Ntm, limits: dict[str, Any], name: str) -> None:
    await configure(ntm, **limits)
    await ntm.submit(plan(nodes="a b"))
    (held,) = await claim(ntm)
    (waiting,) = [each for each in "ab" if each != held.node_id]
    code, text, facts = (await explained(ntm, waiting))[0]
    assert code == "limit_full"
    holders = [f"flow:0:0:{held.node_id}"]
    assert facts == {"limit": name, "held": 1, "most": 1, "total": 1, "holders": holders}
    assert text.endswith(" (1 of 1)")


async def test_holders_of_other_users_are_left_out_when_asked(ntm: Ntm) -> None:
    await configure(ntm, max_running=2)
    await ntm.submit(plan(nodes="a b"))
    await ntm.submit(plan(nodes="x", digest="p2"), flow_id="other", user_id="ann")
    held = await claim(ntm, 2)
    assert {each.flow_id for each in held} == {"flow", "other"}
    (own,) = [each.node_task_id for each in held if each.flow_id == "flow"]
    (waiting,) = {"flow:0:0:a", "flow:0:0:b"} - {own}
    for only_own, named in ((False, sorted(each.node_task_id for each in held)), (True, [own])):
        request = explanation_pb2.ExplainNodeTaskRequest(node_task_id=waiting, user_id="default", only_own=only_own)
        facts = MessageToDict((await ntm.stub.ExplainNodeTask(request)).reasons[0].facts)
        assert (facts["limit"], facts["held"], sorted(facts["holders"])) == ("running", 2, named)


async def test_full_concurrency_key_is_explained(ntm: Ntm) -> None:
    bound = plan(nodes="a b", digest="bound")
    for node in bound.nodes:
        node.concurrency.CopyFrom(node_task_pb2.Concurrency(key="k", max=1))
    await ntm.submit(bound)
    (held,) = await claim(ntm)
    (waiting,) = [each for each in "ab" if each != held.node_id]
    ((code, _, facts),) = await explained(ntm, waiting)
    assert (code, facts["limit"], facts["most"]) == ("limit_full", "key:default:k", 1)


async def test_rate_limit_is_explained_with_its_refill_time(ntm: Ntm) -> None:
    await configure(ntm, rates={"noop": "1/h"})
    await ntm.submit(plan(nodes="a b"))
    (held,) = await claim(ntm)
    (waiting,) = [each for each in "ab" if each != held.node_id]
    found = await explained(ntm, waiting)
    assert codes(found) == ["rate_limited", "queued"]
    assert (found[0][2]["rate"], found[0][2]["total"], found[0][2]["cost"]) == ("1/h", "1/h", 1)
    assert found[0][2]["refills_at"].endswith("Z")


async def test_rate_limit_of_a_key_is_explained(ntm: Ntm) -> None:
    paced = plan(nodes="a b", digest="paced")
    for node in paced.nodes:
        node.rate.CopyFrom(node_task_pb2.KeyRate(key="k", limit="1/h"))
    await ntm.submit(paced)
    (held,) = await claim(ntm)
    (waiting,) = [each for each in "ab" if each != held.node_id]
    ((code, _, facts),) = await explained(ntm, waiting)
    assert (code, facts["limit"], facts["rate"]) == ("rate_limited", "pace:default:k", "1/h")


async def test_retry_is_explained_with_its_time_and_last_error(ntm: Ntm) -> None:
    await ntm.submit(retried())
    (given,) = await claim(ntm)
    await fail(ntm, given.token)
    ((code, text, facts),) = await explained(ntm)
    assert (code, facts["attempt"], facts["attempts"], facts["error_code"]) == ("retry_at", 2, 3, "NODE_ERROR")
    assert text.startswith("attempt 2 of 3 begins at ")
    assert text.endswith("the last one failed: NODE_ERROR: KeyError: 'luck'")


@pytest.mark.parametrize("reason", REFUSALS)
async def test_store_that_refuses_writes_is_the_first_reason(ntm: Ntm, embedded: RedisServer, reason: str) -> None:
    await ntm.submit(CHAIN)
    async with refusing_writes(embedded, reason):
        (code, text, facts), *others = await explained(ntm)
        assert (code, text, facts) == (
            "store_takes_no_writes",
            f"{reason}; nothing can begin or end until it accepts writes again",
            {"why": reason},
        )
        assert codes(others) == ["no_live_worker", "queued"]
    assert codes(await explained(ntm)) == ["no_live_worker", "queued"]


async def test_store_that_refuses_writes_is_no_reason_for_ended_node_tasks(ntm: Ntm, embedded: RedisServer) -> None:
    await ntm.submit(CHAIN)
    (given,) = await claim(ntm)
    await complete(ntm, given.token)
    async with refusing_writes(embedded, next(iter(REFUSALS))):
        assert codes(await explained(ntm)) == ["completed"]


async def test_spent_retry_budget_is_explained(start: Start) -> None:
    ntm = await start(node_task_manager_retries_per_minute=0, node_task_manager_retry_percent=0)
    await ntm.submit(retried())
    (given,) = await claim(ntm)
    await fail(ntm, given.token)
    ((code, text, facts),) = await explained(ntm)
    assert (code, facts["attempt"]) == ("retry_budget_spent", 1)
    assert "RETRY_BUDGET_EXHAUSTED" in text


async def test_running_node_task_is_unconfirmed_until_its_worker_renews(start: Start) -> None:
    ntm = await start(node_task_manager_lease_seconds=120)
    await ntm.submit(CHAIN)
    (given,) = await claim(ntm)

    async def unconfirmed() -> bool:
        return codes(await explained(ntm)) == ["worker_unconfirmed"]

    assert codes(await explained(ntm)) in (["running"], ["worker_unconfirmed"])
    await until(unconfirmed, "the worker has not confirmed it for two seconds")
    ((_, text, facts),) = await explained(ntm)
    assert (facts["worker_id"], facts["attempt"]) == ("u1", 1)
    assert "has not confirmed it yet" in text
    await ntm.stub.RenewLeases(pb2.RenewLeasesRequest(worker_id="u1", tokens=[given.token]))
    ((code, text, _),) = await explained(ntm)
    assert code == "running"
    assert text.startswith("has been running on worker u1 since ")
    # A stop leaves less time than a lease.
    await ntm.stub.StopComponent(pb2.StopComponentRequest(flow_id="flow", run_id="r0", user_id="default"))
    assert codes(await explained(ntm)) == ["stopping", "running"]


async def test_requested_stop_is_explained_with_actor_and_reason(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    await claim(ntm)
    request = pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:a", user_id="default", reason="enough", by="ann")
    await ntm.stub.TerminateNodeTask(request)
    found = await explained(ntm)
    assert codes(found)[0] == "stopping"
    assert (found[0][2]["by"], found[0][2]["why"]) == ("ann", "enough")


async def test_ended_node_task_is_explained_by_its_outcome(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    (given,) = await claim(ntm)
    await complete(ntm, given.token)
    assert codes(await explained(ntm)) == ["completed"]
    (given,) = await claim(ntm)
    await fail(ntm, given.token)
    ((code, text, facts),) = await explained(ntm, "b")
    assert (code, facts["error_code"]) == ("failed", "NODE_ERROR")
    assert text.endswith("NODE_ERROR: KeyError: 'luck'")


async def test_skipped_or_stopped_node_task_is_explained(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    (given,) = await claim(ntm)
    await fail(ntm, given.token)
    assert [(code, facts["why"]) for code, _, facts in await explained(ntm, "b")] == [("skipped", 'node "a" failed')]
    await ntm.submit(plan(nodes="a", digest="p3"), flow_id="other")
    (given,) = await claim(ntm)
    stop = pb2.TerminateNodeTaskRequest(node_task_id="other:0:0:a", user_id="default", reason="enough", by="ann")
    await ntm.stub.TerminateNodeTask(stop)
    failure = work_pb2.NodeTaskFailure(token=given.token, terminated=True)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
    assert [(code, facts["why"]) for code, _, facts in await explained(ntm, "a", "other")] == [("stopped", "enough")]


@pytest.mark.parametrize(
    ("policy", "explains"), [("FAILURE_POLICY_SKIP_DOWNSTREAM", True), ("FAILURE_POLICY_FAIL_FAST", False)]
)
async def test_node_skipped_for_one_of_its_edges_is_told_how_it_would_have_run(
    ntm: Ntm, policy: str, explains: bool
) -> None:
    joined = plan(("a", "out", "c", "in"), ("b", "out", "c", "other"), failure_policy=policy)
    await ntm.submit(joined)
    good, bad = sorted(await claim(ntm), key=lambda each: each.node_id)
    await complete(ntm, good.token)
    await fail(ntm, bad.token)
    ((code, text, facts),) = await explained(ntm, "c")
    hint = '; 1 of its 2 edges brought a value, with "run_if": "any_succeeded" it would have run'
    assert (code, text.endswith(hint)) == ("skipped", explains)
    assert {"edges": 2, "values": 1}.items() <= facts.items() or not explains


async def test_node_skipped_for_its_only_edge_is_told_no_other_way(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    (given,) = await claim(ntm)
    await fail(ntm, given.token)
    ((_, text, facts),) = await explained(ntm, "b")
    assert text.endswith(': node "a" failed')
    assert facts.keys() == {"at", "why"}


async def test_unknown_node_task_is_not_found(ntm: Ntm) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await explained(ntm)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def explained_task(ntm: Ntm, task_id: str) -> list[Explanation]:
    """Return the reasons of an ad-hoc task of ann's."""
    request = explanation_pb2.ExplainNodeTaskRequest(node_task_id=task_id, user_id="ann")
    response = await ntm.stub.ExplainNodeTask(request)
    return [(each.code, each.sentence, MessageToDict(each.facts)) for each in response.reasons]


async def test_ad_hoc_task_limit_is_explained(ntm: Ntm) -> None:
    await configure(ntm, max_concurrent_tasks=1)
    tasks = [(await submit_task(ntm)).task.node_task_id for _ in range(2)]
    (held,) = [each for each in await claim(ntm) if each.node_task_id in tasks]
    (waiting,) = [each for each in tasks if each != held.node_task_id]
    ((code, _, facts),) = await explained_task(ntm, waiting)
    assert (code, facts["limit"], facts["holders"]) == ("limit_full", "adhoc:ann", [held.node_task_id])


async def test_task_whose_worker_has_no_room_waits_for_room(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    busy = worker(capacity=1)
    await busy.open()
    await submit_task(ntm)
    await busy.assigned()
    waiting = (await submit_task(ntm)).task.node_task_id

    async def waits() -> bool:
        return codes(await explained_task(ntm, waiting)) == ["workers_busy", "queued"]

    await until(waits, "the connection is on record")


async def test_task_waiting_for_same_work_is_explained(ntm: Ntm) -> None:
    options = {"cache": {"name": "screening"}}
    first = (await submit_task(ntm, options=options)).task.node_task_id
    assert len(await claim(ntm)) == 1
    second = (await submit_task(ntm, options=options)).task.node_task_id
    assert await claim(ntm) == []
    assert codes(await explained_task(ntm, first))[0] in ("running", "worker_unconfirmed")

    async def waits() -> bool:
        return codes(await explained_task(ntm, second)) == ["waits_for_same_work"]

    await until(waits, "the second one was put off")


async def test_suspended_node_is_explained_by_its_wait(ntm: Ntm) -> None:
    waiting = plan(nodes="a", digest="waiting")
    waiting.nodes[0].node_type, waiting.nodes[0].config_json = "delay", '{"seconds": 3600}'
    await ntm.submit(waiting)
    ((code, text, facts),) = await explained(ntm)
    assert code == "suspended"
    assert text == f"has been suspended since {facts['since']} and waits until {facts['until']}"


async def test_node_that_asks_a_person_is_explained_by_the_question_rather_than_its_signal(ntm: Ntm) -> None:
    asking = plan(nodes="a", digest="asking")
    asking.nodes[0].node_type, asking.nodes[0].config_json = "approval", '{"form": {"title": "Release it?"}}'
    await ntm.submit(asking)
    ((code, text, facts),) = await explained(ntm)
    assert (code, facts["signal"]) == ("suspended", "approval")
    assert text == (
        f'has been suspended since {facts["since"]} and waits for an answer to "Release it?"; '
        "answer it with: tradewind cycle approve flow 0 a"
    )


async def test_node_that_waits_for_a_signal_is_explained_by_how_to_send_it(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    (given,) = await claim(ntm)
    waits = work_pb2.NodeTaskCompletion(token=given.token, wait=work_pb2.WaitOrder(signal="paid"))
    await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[waits]))
    ((_, text, facts),) = await explained(ntm)
    assert text == (
        f'has been suspended since {facts["since"]} and waits for the signal "paid"; '
        "send it with: tradewind task signal flow:0:0:a"
    )
