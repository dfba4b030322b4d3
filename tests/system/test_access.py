"""A stack that asks who calls: users among themselves, workers, streams, and the cost of asking."""

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system import flows
from tests.system.processes import NODES, Shell
from tests.waiting import until
from tradewind.access.ports import Authorized, Refusal
from tradewind.access.stores.redis import RedisSessions
from tradewind.api.keda.v1 import external_scaler_pb2
from tradewind.api.keda.v1.external_scaler_pb2_grpc import ExternalScalerStub
from tradewind.client import Client, NewToken, NotFound, PermissionDenied, Role, Unauthenticated
from tradewind.flow import Flow
from tradewind.server.access.tokens import digest_of
from tradewind.server.channels import open_channel
from tradewind.server.partitions import partition_of
from tradewind.standalone import Standalone
from tradewind.worker import Worker, WorkerError, load_nodes


@pytest_asyncio.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standalone]:
    """Every service, behind a gate."""
    monkeypatch.delenv("TRADEWIND_TOKEN", raising=False)
    monkeypatch.setenv("TRADEWIND_ACCESS_CACHE_SECONDS", "60")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with Standalone(data=tmp_path / "data", port=0, auth=True) as stack:
        yield stack


@pytest_asyncio.fixture
async def admin(guarded: Standalone) -> AsyncIterator[Client]:
    """The first admin."""
    async with Client(guarded.address, token=guarded.new_admin_token) as client:
        yield client


async def test_users_reach_only_their_own_flows_and_tasks(guarded: Standalone, admin: Client) -> None:
    """Flows, their cycles, ad-hoc tasks and notifications, by unary calls and by streams."""
    pool = await admin.create_token("pool", role=Role.WORKER)
    tokens = {name: (await admin.create_token(name, role=Role.USER)).token for name in ("ann", "bob")}
    async with (
        Worker(load_nodes(NODES), address=guarded.address, token=pool.token),
        Client(guarded.address, token=tokens["ann"]) as ann,
        Client(guarded.address, token=tokens["bob"]) as bob,
        Client(guarded.address) as anonymous,
    ):
        await ann.register_flow("sums", flows.sums())
        assert (await ann.get_flow("sums")).flow.user_id == "ann"
        cycle = await ann.run_flow("sums")
        assert (await cycle.wait(30)).succeeded
        task = await ann.submit_task("numbers", {"start": 5})
        assert [state.status async for state in cycle.watch_node("sort")] == ["completed"]

        for client, refused in ((bob, PermissionDenied), (anonymous, Unauthenticated)):
            for call in (
                client.get_flow("sums"),
                client.register_flow("sums", flows.sums()),
                client.start_flow("sums"),
                client.run_flow("sums"),
                client.cycle("sums", 0).describe(),
                client.cycle("sums", 0).stop(),
                client.get_node_task((await cycle.describe()).nodes[0].node_task_id),
                anext(client.watch_task("sums:0:0:sort")),
                client.delete_flow("sums"),
            ):
                with pytest.raises(refused):
                    await call
            with pytest.raises(refused if client is anonymous else NotFound):
                await client.task(task.task_id).cancel()
        assert (await ann.get_flow("sums")).flow.status == "registered"
        assert (await ann.get_flow("sums")).flow.revision == 1

        await bob.register_flow("others", flows.sums())
        assert [flow.flow_id async for flow in ann.list_flows()] == ["sums"]
        assert [flow.flow_id async for flow in bob.list_flows()] == ["others"]
        assert [flow.flow_id async for flow in admin.list_flows()] == ["others", "sums"]
        with pytest.raises(PermissionDenied):
            await ann.get_config()
        with pytest.raises(PermissionDenied):
            await ann.set_user("ann", Role.ADMIN)


async def test_watches_and_waits_of_a_user_end_when_their_flow_is_given_to_another(
    guarded: Standalone, admin: Client
) -> None:
    tokens = {name: (await admin.create_token(name, role=Role.USER)).token for name in ("ann", "bob")}
    flow = Flow("lent", "1d")
    flow.node("n", "nobody_has_this")
    async with (
        Client(guarded.address, token=tokens["ann"]) as ann,
        Client(guarded.address, token=tokens["bob"]) as bob,
        Client(guarded.address, token=guarded.new_admin_token, user_id="bob") as giver,
    ):
        await ann.register_flow("lent", flow)
        cycle = await ann.run_flow("lent")
        wait = asyncio.create_task(cycle.wait(30))
        watches = [client.watch_flows("lent") for client in (ann, admin)]
        assert [(await anext(watch)).status for watch in watches] == ["running", "running"]

        await giver.register_flow("lent", flow)
        await bob.cycle("lent", 0).stop()

        for call in (anext(watches[0]), wait):
            with pytest.raises(PermissionDenied):
                await call
        assert [record.ended async for record in admin.watch_cycle("lent", 0)][-1]
        assert (await anext(watches[1])).flow_id == "lent"
        for watch in watches:
            await watch.aclose()


async def test_tasks_and_batches_of_another_user_are_not_found_by_any_call(guarded: Standalone, admin: Client) -> None:
    """Ids of tasks follow from request ids, so the answer must not tell whether a task of such an id is there."""
    tokens = [(await admin.create_token(name, role=Role.USER)).token for name in ("ann", "bob")]
    async with Client(guarded.address, token=tokens[0]) as ann, Client(guarded.address, token=tokens[1]) as bob:
        task = await ann.submit_task("nobody", request_id="nightly")
        batch = await ann.submit_batch("nobody", [{}])
        for node_task_id in (task.task_id, f"batch:{batch.batch_id}:0", "task:none"):
            for call in (
                bob.get_node_task(node_task_id),
                bob.terminate_node_task(node_task_id),
                bob.explain_node_task(node_task_id),
                bob.signal_node(node_task_id, "go"),
                bob.redrive_dead_letters([node_task_id]),
                anext(bob.watch_task(node_task_id)),
            ):
                with pytest.raises(NotFound, match=f'^no node task "{node_task_id}"'):
                    await call
        assert (await ann.get_node_task(task.task_id)).status == "pending"


async def test_explanations_name_no_node_tasks_of_other_users(
    guarded: Standalone, admin: Client, tmp_path: Path
) -> None:
    """A full limit on everything is explained by its holders; of those of another user, only how many there are."""
    pool = await admin.create_token("pool", role=Role.WORKER)
    tokens = [(await admin.create_token(name, role=Role.USER)).token for name in ("ann", "bob")]
    await admin.update_config(max_running=1)
    file = tmp_path / "gate"
    async with (
        Worker(load_nodes(NODES), address=guarded.address, token=pool.token),
        Client(guarded.address, token=tokens[0]) as ann,
        Client(guarded.address, token=tokens[1]) as bob,
    ):
        held = await ann.submit_task("gate", {"file": str(file)})
        await until(Path(f"{file}.begun").exists, "ann's task holds the slot")
        await bob.register_flow("others", flows.sums())
        await bob.run_flow("others")

        async def reasons(client: Client) -> dict[str, Mapping[str, object]]:
            explained = await client.explain_node("others", "alone")
            return {each.code: each.facts for each in explained}

        await until(lambda: _is_explained(reasons(bob)), "bob's node waits for the slot")
        assert (await reasons(admin))["limit_full"]["holders"] == [held.task_id]
        full = (await reasons(bob))["limit_full"]
        assert full == {"limit": "running", "held": 1, "most": 1, "total": 1, "holders": []}
        direct = await bob.explain_node_task("others:0:0:alone")
        assert [each.facts["holders"] for each in direct if each.code == "limit_full"] == [[]]
        file.touch()


async def _is_explained(reasons: Awaitable[Mapping[str, object]]) -> bool:
    return "limit_full" in await reasons


async def test_request_ids_of_users_do_not_meet(guarded: Standalone, admin: Client) -> None:
    """A user who guesses the request ids of calls of another, such as those of a nightly job, stops none of them."""
    tokens = [(await admin.create_token(name, role=Role.USER)).token for name in ("ann", "bob")]
    # Request ids are remembered in the partition of the flow.
    theirs = next(name for name in map(str, count()) if partition_of(name) == partition_of("sums"))
    for token, flow_id in zip(reversed(tokens), (theirs, "sums"), strict=True):
        async with (
            Client(guarded.address, token=token) as client,
            Client(guarded.address, token=token, run_stream=False) as unary,
        ):
            await client.register_flow(flow_id, flows.sums(interval="1d", overlap="allow"))
            first = await client.run_flow(flow_id, request_id="nightly")
            assert (await client.run_flow(flow_id, request_id="nightly")).cycle == first.cycle
            assert (await unary.run_flow(flow_id, request_id="hourly")).cycle == first.cycle + 1
            await first.stop()
            await first.wait(30)
            assert (await client.rerun_cycle(flow_id, first.cycle, request_id="again")).run == 1
            days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 3)]
            assert (await client.backfill_flow(flow_id, *days, request_id="past")).flow_id == flow_id


async def test_operators_notify_users_who_notify_nobody(guarded: Standalone, admin: Client) -> None:
    tokens = [
        (await admin.create_token(name, role=role)).token for name, role in (("op", Role.OPERATOR), ("ann", Role.USER))
    ]
    async with Client(guarded.address, token=tokens[0]) as operator, Client(guarded.address, token=tokens[1]) as ann:
        assert await operator.send_notification("maintenance at noon", user_id="ann")
        assert await admin.send_notification("over", user_id="ann")
        assert [each.title async for each in ann.list_notifications()] == ["over", "maintenance at noon"]
        with pytest.raises(PermissionDenied, match="needs the role operator"):
            await ann.send_notification("free money", user_id="ann")


async def test_revisions_and_stops_name_the_user_who_made_them(guarded: Standalone, admin: Client) -> None:
    token = (await admin.create_token("ann", role=Role.USER)).token
    async with Client(guarded.address, token=token) as ann:
        await ann.register_flow("sums", flows.sums(), note="first")
        assert [(each.revision, each.by) async for each in ann.list_revisions("sums")] == [(1, "ann")]
        cycle = await ann.run_flow("sums")
        assert (stop := (await cycle.stop()).stop) is not None
        assert stop.by == "ann"
        await ann.start_flow("sums")
        assert (stop := (await admin.stop_flow("sums")).stop) is not None
        assert stop.by == "admin"


async def test_keda_scaler_needs_no_token(guarded: Standalone) -> None:
    """KEDA cannot send a token."""
    async with open_channel(guarded.address) as channel:
        reference = external_scaler_pb2.ScaledObjectRef(name="worker")
        answer = await ExternalScalerStub(channel).IsActive(reference, timeout=30)
        assert isinstance(answer, external_scaler_pb2.IsActiveResponse)
        assert not answer.result


async def test_node_tasks_and_repeated_calls_cause_no_token_lookups(
    guarded: Standalone, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many node tasks go over the open stream, and however often a known token calls."""
    lookups: list[str] = []
    authorize = RedisSessions.authorize

    async def counting_authorize(self: RedisSessions, digest: str) -> Authorized | Refusal:
        lookups.append(digest)
        return await authorize(self, digest)

    monkeypatch.setattr(RedisSessions, "authorize", counting_authorize)
    pool = (await admin.create_token("pool", role=Role.WORKER)).token
    ann_token = (await admin.create_token("ann", role=Role.USER)).token
    async with (
        Worker(load_nodes(NODES), address=guarded.address, token=pool),
        Client(guarded.address, token=ann_token) as ann,
    ):
        await ann.register_flow("sums", flows.sums())
        lookups_before = len(lookups)
        assert set(lookups) <= {digest_of(token) for token in (pool, ann_token, guarded.new_admin_token or "")}
        ended = [await (await ann.run_flow("sums")).wait(30) for _ in range(30)]
        assert all(cycle.succeeded for cycle in ended)
        # Each of the two tokens is remembered for a minute.
        assert len(lookups) - lookups_before <= 2


async def test_worker_needs_token_and_leaves_once_it_is_revoked(guarded: Standalone, admin: Client) -> None:
    with pytest.raises(WorkerError):
        async with Worker(load_nodes(NODES), address=guarded.address):
            pass
    pool = await admin.create_token("pool", role=Role.WORKER)
    with pytest.raises(WorkerError):
        await _work_until_revoked(guarded, admin, pool)


async def _work_until_revoked(stack: Standalone, admin: Client, pool: NewToken) -> None:
    async with Worker(load_nodes(NODES), address=stack.address, token=pool.token) as worker:
        await admin.revoke_session(pool.session.session_id, user_id="pool")
        serving = worker._background
        assert serving is not None
        # The worker leaves when its stream ends, or at the latest with its next heartbeat.
        await until(serving.done, "the worker has left", timeout=60)


async def test_login_logout_and_tokens_on_the_command_line(guarded: Standalone, tmp_path: Path) -> None:
    shell = Shell(guarded.address)
    assert guarded.new_admin_token is not None
    file = guarded.admin_token_file
    assert file.read_text().strip() == guarded.new_admin_token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    assert "send one as" in await shell("flow", "list", exit_code=1)
    for arguments, piped in ((("--token-file", str(file)), None), ((), f"{guarded.new_admin_token}\n")):
        assert "logged in as admin (admin)" in await shell("login", *arguments, input=piped)
    saved = tmp_path / "config" / "tradewind" / "tokens.json"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert guarded.new_admin_token not in saved.read_text()
    assert await shell("whoami") == "admin (admin)\n"
    ci = ("--user", "ann", "--role", "user", "--label", "ci", "--lifetime", "12h")
    token = (await shell("token", "create", *ci)).strip()
    (listed,) = await shell.json("token", "list", "--user", "ann")
    assert (listed["label"], listed["kind"]) == ("ci", "token")
    created, expires = (datetime.fromisoformat(listed[when]) for when in ("created_at", "expires_at"))
    assert expires - created == timedelta(hours=12)
    assert sorted(user["user_id"] for user in await shell.json("user", "list")) == ["admin", "ann"]
    async with Client(guarded.address, token=token) as ann:
        assert (await ann.who_am_i()).role is Role.USER
        assert (await shell.json("user", "set", "ann", "--role", "operator"))["role"] == "operator"
        await until(lambda: _has_role(ann, Role.OPERATOR), "the role has changed")
        assert await shell.json("token", "revoke", listed["session_id"], "--user", "ann") == {"revoked": 1}
        await until(lambda: _has_role(ann, None), "the token is revoked")
    await shell("logout")
    refused = await shell("whoami", exit_code=1)
    assert "send one as" in refused
    assert "log in with a token: tradewind login" in refused


async def test_logout_ends_login_session_and_no_other_token(
    guarded: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(guarded.address)
    assert guarded.new_admin_token is not None
    await shell("login", "--token-file", str(guarded.admin_token_file))
    assert sorted(each["kind"] for each in await shell.json("token", "list")) == ["login", "token"]
    monkeypatch.setenv("TRADEWIND_TOKEN", guarded.new_admin_token)
    await shell("logout")
    assert [each["kind"] for each in await shell.json("token", "list")] == ["token"]
    assert "not logged in" in await shell("logout", exit_code=1)
    assert [each["kind"] for each in await shell.json("token", "list")] == ["token"]
    await shell("login", "--token-file", str(guarded.admin_token_file))
    (login_session,) = [each for each in await shell.json("token", "list") if each["kind"] == "login"]
    await shell("token", "revoke", login_session["session_id"])
    assert await shell("logout") == "logged out\n", "the session has ended already"
    assert "not logged in" in await shell("logout", exit_code=1)


async def test_bench_uses_saved_login(guarded: Standalone) -> None:
    """The clients and the worker of the benchmark use the saved token."""
    shell = Shell(guarded.address)
    await shell("login", "--token-file", str(guarded.admin_token_file))
    (measured,) = await shell.json("bench", "chain-1", "--scale", "0.01")
    assert measured["nodes_per_second"] > 0


async def _has_role(client: Client, role: Role | None) -> bool:
    try:
        return (await client.who_am_i()).role is role
    except Unauthenticated:
        return role is None
