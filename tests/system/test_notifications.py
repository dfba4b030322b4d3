"""Task events and notifications over a whole stack: the clients, across a server's restart, and the commands."""

import asyncio
import json
import re
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from tests.ports import free_port
from tests.system import flows
from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import (
    Client,
    Notification,
    NotificationKind,
    Severity,
    SyncClient,
    TaskEventKind,
    WatchedTask,
)
from tradewind.flow import Flow
from tradewind.standalone import Standalone
from tradewind.worker import Worker, node


async def test_task_events_can_be_replayed_from_any_event(client: Client) -> None:
    handle = await client.submit_task("numbers", {"start": 5, "count": 2})
    assert await handle.result(30) == {"numbers": [5, 6]}
    whole = [task async for task in client.watch_task(handle.task_id, after="0-0")]
    assert [task.happened for task in whole] == [
        TaskEventKind.QUEUED,
        TaskEventKind.RUNNING,
        TaskEventKind.COMPLETED,
    ]
    assert whole[-1].outputs == {"numbers": [5, 6]}
    assert not whole[0].outputs
    rest = [task async for task in handle.watch(after=whole[0].event_id)]
    assert [task.event_id for task in rest] == [task.event_id for task in whole[1:]]


async def test_user_is_notified_of_tasks_batches_and_failed_cycles(client: Client) -> None:
    await (await client.submit_task("numbers", {})).wait(30)
    batch = await client.submit_batch("failing", [{"total": 1}] * 3)
    await batch.wait(30)
    await client.register_flow("failures", flows.failing())
    await (await client.run_flow("failures")).wait(30)
    received: list[Notification] = []
    async with aclosing(client.watch_notifications(after="0-0")) as notifications:
        async for each in notifications:
            received.append(each)
            if len(received) == 3:
                break
    assert [each.kind for each in received] == [
        NotificationKind.TASK_COMPLETED,
        NotificationKind.BATCH_FINISHED,
        NotificationKind.CYCLE_FAILED,
    ]
    assert str(received[1]) == f'batch {batch.batch_id} of 3 of type "failing" failed: 3 failed'
    assert str(received[2]).startswith('nodes of cycle 0 of flow "failures" failed: 1 of ')
    assert (received[2].flow_id, received[2].cycle, received[2].severity) == ("failures", 0, Severity.ERROR)
    assert await client.mark_notifications_read(received[1].notification_id) == 1
    assert [each.read async for each in client.list_notifications()] == [False, True, True]


async def test_watches_resume_after_server_restart(tmp_path: Path) -> None:
    release = asyncio.Event()

    @node("held")
    async def held() -> int:
        await release.wait()
        return 5

    flow = Flow("holding", "1h")
    flow.node("hold", "held")
    events: list[WatchedTask] = []
    of_node: list[WatchedTask] = []
    received: list[Notification] = []
    port = free_port()
    async with AsyncExitStack() as running:
        async with Standalone(data=tmp_path, port=port) as first:
            address = first.address
            client = await running.enter_async_context(Client(address))
            await running.enter_async_context(Worker([held], address=address))
            task = await client.submit_task("held", {})
            await client.register_flow("holding", flow)
            cycle = await client.run_flow("holding")

            async def watch() -> None:
                events.extend([each async for each in client.watch_task(task.task_id)])

            async def watch_node() -> None:
                async for each in cycle.watch_node("hold"):
                    of_node.append(each)

            async def listen() -> None:
                async for each in client.watch_notifications(after="0-0"):
                    received.append(each)

            watching, listening = asyncio.gather(watch(), watch_node()), asyncio.create_task(listen())
            running.push_async_callback(_end, listening)
            await until(lambda: of_node, "an event of the node has arrived")
            await client.send_notification("before")
            await until(lambda: received, "the notification has arrived")
        async with Standalone(data=tmp_path, port=port):
            release.set()
            await client.send_notification("after")
            await asyncio.wait_for(watching, 60)
            await until(lambda: len(received) == 3, "the others have arrived", timeout=60)
    words = [each.title if each.title in ("before", "after") else each.title.split()[-1] for each in received]
    assert sorted(words) == ["after", "before", "completed"]
    assert events[-1].happened is TaskEventKind.COMPLETED
    for stream in (events, [each for each in of_node if each.event_id]):
        ids = [each.event_id for each in stream]
        assert ids == sorted(set(ids), key=lambda at: tuple(map(int, at.split("-"))))
    assert not any(each.gap for each in of_node)
    assert (of_node[-1].happened, of_node[-1].outputs) == (TaskEventKind.COMPLETED, {"output": 5})


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_sync_client_sends_lists_and_marks_notifications(client: Client) -> None:
    def run() -> tuple[bool, list[str], int]:
        with SyncClient(addresses=client.addresses) as tradewind:
            sent = tradewind.send_notification("noon", "the store is moved", severity="warning", key="k")
            again = tradewind.send_notification("noon", key="k")
            titles = [str(each) for each in tradewind.list_notifications()]
            assert tradewind.count_unread_notifications() == 1
            return sent and not again, titles, tradewind.mark_notifications_read()

    assert await asyncio.to_thread(run) == (True, ["noon: the store is moved"], 0)


async def test_task_watch_and_notification_commands(shell: Shell) -> None:
    submitted = await shell.json("task", "submit", "numbers", "--param", "start=3", "--wait")
    task_id = submitted["node_task_id"]
    lines = (await shell("task", "watch", task_id, "--after", "0-0")).splitlines()
    assert [re.sub(r"^\S+ +(\w+).*", r"\1", line) for line in lines] == ["queued", "running", "completed"]
    assert re.match(r"\d{4}-\S+Z  running: attempt 1 on \S+", lines[1])
    (event,) = map(json.loads, (await shell("task", "watch", task_id, "-o", "json")).splitlines())
    assert (event["happened"], event["status"]) == ("completed", "completed")
    failing = await shell.json("task", "submit", "failing", "--param", "total=1")
    assert "failed: ValueError" in await shell("task", "watch", failing["task"]["node_task_id"], exit_code=1)

    assert await shell("notification", "send", "noon", "--severity", "warning", "--key", "k") == "sent\n"
    assert "not sent" in await shell("notification", "send", "noon", "--key", "k")
    assert "use one of info, warning, error\n" in await shell(
        "notification", "send", "x", "--severity", "mild", exit_code=2
    )
    listed = await shell("notification", "list")
    assert re.search(r"new +noon\n.*failed.*\n.*completed\n3 unread", listed)
    watched = (await shell("notification", "watch", "--after", "0-0", "--count", "3", "-o", "json")).splitlines()
    ids = [json.loads(line)["notification_id"] for line in watched]
    assert json.loads(watched[0])["kind"] == "task_completed"
    assert await shell("notification", "read", ids[1]) == "1 unread\n"
    assert len((await shell.json("notification", "list", "--unread"))["notifications"]) == 1
    assert (await shell.json("notification", "read"))["unread"] == 0
    assert "is not the id of a notification" in await shell("notification", "watch", "--after", "now", exit_code=2)
