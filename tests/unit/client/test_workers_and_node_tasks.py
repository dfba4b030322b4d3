"""What a client learns from the registry and the node task manager."""

import pytest

from tests.unit.client.fake_stack import FakeStack
from tradewind.client import Client, NodeTaskStatus, NotFound, Unreachable, WorkerStatus


async def test_list_workers_omits_offline_ones(client: Client) -> None:
    workers = [worker async for worker in client.list_workers()]

    assert [worker.worker_id for worker in workers] == ["w1"]
    assert workers[0].status is WorkerStatus.ACTIVE
    assert workers[0].node_types == ("feed", "model")


async def test_list_workers_includes_offline_ones_over_pages(client: Client) -> None:
    workers = [worker async for worker in client.list_workers(include_offline=True)]

    assert [worker.status for worker in workers] == ["active", "offline"]


async def test_get_worker_finds_worker_by_id(client: Client) -> None:
    assert (await client.get_worker("w2")).pid == 2
    with pytest.raises(NotFound, match='no worker "w9"'):
        await client.get_worker("w9")


async def test_list_node_types_includes_schemas(client: Client) -> None:
    node_types = [node_type async for node_type in client.list_node_types()]

    assert [node_type.type for node_type in node_types] == ["feed"]
    assert node_types[0].inputs[0].schema == {"type": "array"}
    assert node_types[0].inputs[0].gather
    assert node_types[0].outputs[0].schema is None


async def test_get_node_task_returns_its_state(client: Client) -> None:
    task = await client.get_node_task("momentum:0:0:model")

    assert task.status is NodeTaskStatus.RUNNING
    assert not task.status.ended
    assert (task.attempt, task.progress, task.message) == (2, 40, "fitting")
    assert task.config == {"window": 20}
    assert task.error is None
    with pytest.raises(NotFound):
        await client.get_node_task("momentum:0:0:feed")


async def test_repeated_signal_has_same_request_id(client: Client, stack: FakeStack) -> None:
    """A server that keeps signals would otherwise keep two."""
    await client.signal_node("momentum:0:0:model", "filled")

    first, again = stack.node_task_manager.signals
    assert first.request_id
    assert first == again


async def test_repeated_notification_is_stored_once(client: Client, stack: FakeStack) -> None:
    assert await client.send_notification("maintenance at noon")
    assert len(stack.node_task_manager.notifications) == 1
    assert await client.send_notification("maintenance at noon")
    assert len(stack.node_task_manager.notifications) == 2


async def test_repeated_fire_trigger_fires_once(client: Client, stack: FakeStack) -> None:
    assert await client.fire_trigger("reports", "daily")
    assert len(stack.trigger.fired) == 1


async def test_token_creation_is_not_repeated_after_lost_answer(client: Client, stack: FakeStack) -> None:
    for make in (client.create_token, client.log_in):
        with pytest.raises(Unreachable, match="the connection broke"):
            await make()
    assert stack.access.made == 2


async def test_terminate_node_task_sends_reason(client: Client, stack: FakeStack) -> None:
    task = await client.terminate_node_task("momentum:0:0:model", reason="too slow")

    assert (task.stop_reason, task.stop_by) == ("too slow", "default")
    assert stack.node_task_manager.task.stop.reason == "too slow"
