"""Revisions of flows over gRPC: updates by mask and etag, history, rollbacks."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.waiting import until
from tradewind.api.registry.v1 import node_type_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2, revision_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_pb2


def update(paths: str, etag: str = "", request_id: str = "", **fields: Any) -> revision_pb2.UpdateFlowRequest:
    """Return a request to change the fields at `paths`, which are separated by spaces."""
    spec = flow_pb2.FlowSpec(**fields)
    mask = FieldMask(paths=paths.split())
    return revision_pb2.UpdateFlowRequest(
        flow_id="f", spec=spec, update_mask=mask, etag=etag, request_id=request_id, by="ada", note="why"
    )


async def config(scheduler: Client) -> Any:
    return json.loads((await scheduler.flow()).config_json)


async def listed(scheduler: Client) -> list[revision_pb2.Revision]:
    response = await scheduler.stub.ListRevisions(revision_pb2.ListRevisionsRequest(flow_id="f"))
    return list(response.revisions)


async def test_update_changes_named_fields_and_keeps_the_graph(scheduler: Client) -> None:
    first = await scheduler.register("f", "a", "b", edges="a>b", description="d", labels={"team": "a"})
    await scheduler.run()
    graph = {key: (await config(scheduler))[key] for key in ("nodes", "edges")}
    response = await scheduler.stub.UpdateFlow(
        update("overlap keep_cycles description timeout", keep_cycles=7, timeout="1h", labels={"not": "named"})
    )
    assert response.changed
    assert json.loads(response.flow.config_json) == {**graph, "interval": 60, "keep_cycles": 7, "timeout": 3600}
    assert (response.flow.revision, response.flow.last_cycle) == (2, 0)
    assert dict(response.flow.labels) == {"team": "a"}
    assert response.flow.etag != first.etag
    again = await scheduler.stub.UpdateFlow(update("keep_cycles", keep_cycles=7))
    assert (again.changed, again.flow.revision) == (False, 2)
    relabelled = (await scheduler.stub.UpdateFlow(update("labels", labels={"x": "y"}))).flow
    assert dict(relabelled.labels) == {"x": "y"}
    assert await scheduler.run()


async def test_a_running_flow_follows_its_new_schedule_at_once(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    epoch = peers.triggers.epochs["f"]
    flow = (await scheduler.stub.UpdateFlow(update("interval", interval="5"))).flow
    assert flow.status == flow_pb2.FLOW_STATUS_RUNNING
    assert peers.triggers.triggers["f"].schedule.interval.interval.seconds == 5
    assert peers.triggers.epochs["f"] > epoch
    epoch = peers.triggers.epochs["f"]
    await scheduler.stub.UpdateFlow(update("schedule.jitter", schedule=flow_pb2.ScheduleSpec(jitter="1s")))
    assert peers.triggers.triggers["f"].schedule.jitter.seconds == 1
    assert peers.triggers.triggers["f"].schedule.interval.interval.seconds == 5
    cron = flow_pb2.ScheduleSpec(cron="0 2 * * *", zone="Europe/Berlin")
    await scheduler.stub.UpdateFlow(update("schedule", schedule=cron))
    assert peers.triggers.triggers["f"].schedule.cron.time_zone == "Europe/Berlin"
    assert peers.triggers.triggers["f"].schedule.jitter.seconds == 0
    epoch = peers.triggers.epochs["f"]
    await scheduler.stub.UpdateFlow(update("description", description="the same times"))
    assert peers.triggers.epochs["f"] == epoch


async def test_update_warns_of_missed_times_that_overlap_would_drop(scheduler: Client) -> None:
    await scheduler.register(overlap=flow_pb2.OVERLAP_POLICY_SKIP)
    catch_up = update("schedule.catch_up", schedule=flow_pb2.ScheduleSpec(catch_up=flow_pb2.CATCH_UP_ALL))
    (warning,) = (await scheduler.stub.UpdateFlow(catch_up)).warnings
    assert (warning.path, '"queue_all"' in warning.message) == ("schedule.catch_up", True)
    response = await scheduler.stub.UpdateFlow(update("overlap", overlap=flow_pb2.OVERLAP_POLICY_QUEUE_ALL))
    assert (response.changed, list(response.warnings)) == (True, [])


async def test_update_and_rollback_warn_of_flows_that_do_not_exist(scheduler: Client) -> None:
    await scheduler.register()
    ends = flow_pb2.ScheduleSpec(flow_finished=trigger_pb2.FlowFinishedSchedule(flow_ids=["prizes"]))
    (warning,) = (await scheduler.stub.UpdateFlow(update("schedule", schedule=ends))).warnings
    assert warning.path == "schedule.flow_finished.flow_ids[0]"
    assert warning.message == 'flow "prizes" is not registered; its ends begin nothing until it is'
    await scheduler.stub.UpdateFlow(update("schedule interval", interval="5"))
    rolled_back = await scheduler.stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f", revision=2))
    assert warning in rolled_back.warnings


async def test_all_faults_of_an_update_are_reported_at_once(scheduler: Client) -> None:
    await scheduler.register()
    request = update("overlap nodes keep_cyles", overlap=99)
    request.note = "x" * 1025
    error = await refused(scheduler.stub.UpdateFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    messages = dict(error.violations)
    assert set(messages) == {"overlap", "update_mask.paths[1]", "update_mask.paths[2]", "note"}
    assert 'did you mean "keep_cycles"' in messages["update_mask.paths[2]"]
    request = update("keep_for interval", keep_for="1s")
    error = await refused(scheduler.stub.UpdateFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert {path for path, _ in error.violations} == {"keep_for", "interval"}
    nothing = update("")
    error = await refused(scheduler.stub.UpdateFlow(nothing), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert [path for path, _ in error.violations] == ["update_mask"]
    assert (await scheduler.flow()).revision == 1


async def test_outdated_etag_is_refused_with_the_current_one(scheduler: Client) -> None:
    read = (await scheduler.register()).etag
    await scheduler.start()
    await scheduler.run()
    assert (await scheduler.flow()).etag == read
    present = (await scheduler.stub.UpdateFlow(update("description", read, description="1"))).flow.etag
    spec = flow_pb2.FlowSpec(interval="9", nodes=[flow_pb2.NodeSpec(id="a", type="t")])
    calls: list[Awaitable[object]] = [
        scheduler.stub.UpdateFlow(update("description", read, description="2")),
        scheduler.stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f", revision=1, etag=read)),
        scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec, etag=read)),
        scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec, etag=read, validate_only=True)),
    ]
    for call in calls:
        error = await refused(call, grpc.StatusCode.ABORTED, "VERSION_CONFLICT")
        assert error.metadata == {"flow_id": "f", "etag": present, "revision": "2"}
        assert present in error.message
    assert (await scheduler.flow()).revision == 2
    request = pb2.RegisterFlowRequest(flow_id="f", spec=spec, etag=present)
    assert (await scheduler.stub.RegisterFlow(request)).flow.revision == 3


async def test_concurrent_updates_are_all_applied(scheduler: Client) -> None:
    await scheduler.register()
    values: dict[str, Any] = {"keep_cycles": 7, "timeout": "1h", "description": "d", "max_running": 3, "keep_for": "2h"}
    await asyncio.gather(*(scheduler.stub.UpdateFlow(update(name, **{name: value})) for name, value in values.items()))
    assert {**values, "timeout": 3600, "keep_for": 7200}.items() <= (await config(scheduler)).items()
    assert [each.revision for each in await listed(scheduler)] == [6, 5, 4, 3, 2, 1]


async def test_diff_too_large_for_an_answer_is_refused(scheduler: Client) -> None:
    for letter in "ab":
        nodes = [{"id": f"n{place}", "type": "t", "config": {"x": letter * 200_000}} for place in range(8)]
        definition = json.dumps({"interval": 1, "nodes": nodes})
        await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", weather_json=definition))
    request = scheduler.stub.DiffRevisions(revision_pb2.DiffRevisionsRequest(flow_id="f"))
    await refused(request, grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")


async def test_repeated_update_gets_the_first_answer(scheduler: Client) -> None:
    read = (await scheduler.register()).etag
    request = update("description", read, "r1", description="1")
    first = await scheduler.stub.UpdateFlow(request)
    again = await scheduler.stub.UpdateFlow(request)
    assert (again.flow.revision, again.flow.etag) == (first.flow.revision, first.flow.etag)
    other = update("description", "", "r1", description="2")
    await refused(scheduler.stub.UpdateFlow(other), grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_revisions_show_author_time_note_and_open_runs(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a")
    await scheduler.run(wait=0)
    await scheduler.stub.UpdateFlow(update("description", description="1"))
    spec = flow_pb2.FlowSpec(interval="9", nodes=[flow_pb2.NodeSpec(id="b", type="t")])
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec, by="eve", note="anew"))
    third, second, first = await listed(scheduler)
    assert [(each.revision, each.by, each.note, each.open_runs) for each in (third, second, first)] == [
        (3, "eve", "anew", 0),
        (2, "ada", "why", 0),
        (1, "user", "", 1),
    ]
    assert [each.current for each in (third, second, first)] == [True, False, False]
    assert first.created_at.ToMilliseconds() <= third.created_at.ToMilliseconds()
    assert third.created_at == (await scheduler.flow()).updated_at
    await peers.node_tasks.finish(("f", 0, 0))
    await scheduler.ended()
    assert [each.open_runs for each in await listed(scheduler)] == [0, 0, 0]

    page = await scheduler.stub.ListRevisions(revision_pb2.ListRevisionsRequest(flow_id="f", page_size=2))
    assert [each.revision for each in page.revisions] == [3, 2]
    rest = revision_pb2.ListRevisionsRequest(flow_id="f", page_size=2, page_token=page.next_page_token)
    last = await scheduler.stub.ListRevisions(rest)
    assert ([each.revision for each in last.revisions], last.next_page_token) == ([1], "")


async def test_revisions_are_returned_with_definitions_and_compared(scheduler: Client) -> None:
    await scheduler.register("f", "a", "b", edges="a>b", labels={"team": "a"})
    await scheduler.register("f", "a", "c", edges="a>c", labels={"team": "b"}, interval="5")
    old = await scheduler.stub.GetRevision(revision_pb2.GetRevisionRequest(flow_id="f", revision=1))
    assert [node["id"] for node in json.loads(old.config_json)["nodes"]] == ["a", "b"]
    assert (old.revision.revision, old.revision.current, dict(old.revision.labels)) == (1, False, {"team": "a"})
    current = await scheduler.stub.GetRevision(revision_pb2.GetRevisionRequest(flow_id="f"))
    assert (current.revision.revision, current.revision.current) == (2, True)

    latest = await scheduler.stub.DiffRevisions(revision_pb2.DiffRevisionsRequest(flow_id="f"))
    assert (latest.from_revision, latest.to_revision) == (1, 2)
    assert [(node.node_id, node.kind) for node in latest.diff.nodes] == [
        ("b", revision_pb2.CHANGE_KIND_REMOVED),
        ("c", revision_pb2.CHANGE_KIND_ADDED),
    ]
    assert [(edge.edge.target, edge.kind) for edge in latest.diff.edges] == [
        ("b", revision_pb2.CHANGE_KIND_REMOVED),
        ("c", revision_pb2.CHANGE_KIND_ADDED),
    ]
    assert [(each.path, each.before_json, each.after_json) for each in latest.diff.settings] == [
        ("interval", "60", "5"),
        ("labels.team", '"a"', '"b"'),
    ]
    same = revision_pb2.DiffRevisionsRequest(flow_id="f", from_revision=2, to_revision=2)
    assert (await scheduler.stub.DiffRevisions(same)).diff == revision_pb2.FlowDiff()


async def test_unknown_flows_and_revisions_are_refused(scheduler: Client) -> None:
    await scheduler.register()
    stub = scheduler.stub
    missing: list[tuple[Awaitable[object], str]] = [
        (stub.GetRevision(revision_pb2.GetRevisionRequest(flow_id="f", revision=2)), "the latest is 1"),
        (
            stub.DiffRevisions(revision_pb2.DiffRevisionsRequest(flow_id="f")),
            "the first was 1, so there is no earlier one to compare it with",
        ),
        (stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f", revision=9)), "the latest is 1"),
    ]
    for call, hint in missing:
        refusal = await refused(call, grpc.StatusCode.NOT_FOUND, "REVISION_NOT_FOUND")
        assert refusal.message.endswith(f"; {hint}")
    calls: list[Awaitable[object]] = [
        stub.GetRevision(revision_pb2.GetRevisionRequest(flow_id="nobody")),
        stub.ListRevisions(revision_pb2.ListRevisionsRequest(flow_id="nobody")),
        stub.DiffRevisions(revision_pb2.DiffRevisionsRequest(flow_id="nobody")),
        stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="nobody", revision=1)),
        stub.UpdateFlow(revision_pb2.UpdateFlowRequest(flow_id="nobody", update_mask=FieldMask(paths=["description"]))),
    ]
    for call in calls:
        await refused(call, grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    calls = [
        stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f")),
        stub.GetRevision(revision_pb2.GetRevisionRequest(flow_id="f", revision=-1)),
        stub.ListRevisions(revision_pb2.ListRevisionsRequest(flow_id="f", page_token="nonsense")),
    ]
    for call in calls:
        await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_rollback_makes_a_new_revision_from_an_old_one(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a", labels={"team": "a"}, interval="60")
    await scheduler.start()
    await scheduler.register("f", "b", labels={"team": "b"}, interval="5")
    request = revision_pb2.RollBackFlowRequest(flow_id="f", revision=1, by="ada", request_id="r1")
    response = await scheduler.stub.RollBackFlow(request)
    assert (response.changed, response.flow.revision, dict(response.flow.labels)) == (True, 3, {"team": "a"})
    assert response.flow.status == flow_pb2.FLOW_STATUS_RUNNING
    assert peers.triggers.triggers["f"].schedule.interval.interval.seconds == 60
    third, _, first = await listed(scheduler)
    assert (third.digest, third.by, third.note) == (first.digest, "ada", "as revision 1")
    assert (await scheduler.stub.RollBackFlow(request)).flow.revision == 3
    again = await scheduler.stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f", revision=1))
    assert (again.changed, again.flow.revision) == (False, 3)
    assert [node["id"] for node in (await config(scheduler))["nodes"]] == ["a"]
    assert await scheduler.run()


async def test_rollback_to_handles_no_longer_offered_only_warns(scheduler: Client, start: Start, peers: Peers) -> None:
    await scheduler.register("f", "a", "b", edges="a>b")
    await scheduler.register("f", "a")
    peers.registry.offer(node_type_pb2.NodeType(type="noop", outputs=[node_type_pb2.OutputHandle(name="another")]))
    # The registry's previous answer is used for some seconds; another replica asks anew.
    another = await start()
    response = await another.stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f", revision=1))
    assert "edges[0].source_handle" in [warning.path for warning in response.warnings]
    assert json.loads((await scheduler.flow()).config_json)["edges"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_cycle_keeps_its_revision_when_its_submission_is_retried(
    start: Start, peers: Peers, restarted: bool
) -> None:
    scheduler = await start(scheduler_check_in_seconds=0.2)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    peers.node_tasks.automatic = False
    await scheduler.register("f", "old")
    await peers.node_tasks.go_down()
    assert (await scheduler.run(wait=0)).revision == 1
    await scheduler.register("f", "new")
    await scheduler.register("f", "newer")
    if restarted:
        await scheduler.server.stop()
        scheduler = await start(scheduler_check_in_seconds=0.2)
    await peers.node_tasks.come_up()
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the cycle is submitted")
    (component,) = peers.node_tasks.runs["f", 0, 0].submission.components
    assert [node.node_id for node in peers.node_tasks.plans[component.plan_digest].nodes] == ["old"]
    await peers.node_tasks.finish(("f", 0, 0))
    cycle = await scheduler.ended()
    assert (cycle.revision, cycle.status) == (1, cycle_pb2.CYCLE_STATUS_COMPLETED)
    assert (await scheduler.run(wait=0)).revision == 3
