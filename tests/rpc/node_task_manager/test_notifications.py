"""Notifications over a real channel: when users are notified; listing, following, marking as read, sending."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, Start, pubsub_connections
from tests.rpc.node_task_manager.test_ad_hoc import refused, submit_batch, submit_task
from tests.rpc.node_task_manager.test_calls import claim, complete
from tests.rpc.node_task_manager.test_task_events import TWICE, TaskWatch, claim_one, fail
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2
from tradewind.api.node_task_manager.v1 import notification_pb2 as pb2
from tradewind.server.paging import page_token
from tradewind.server.redis.client import Client

DRAFT = {"user_id": "ann", "title": "maintenance at noon"}


class Inbox:
    """A client that follows Ann's notifications."""

    def __init__(self, ntm: Ntm, after: str = "") -> None:
        request = pb2.WatchNotificationsRequest(user_id="ann", after_notification_id=after)
        self.seen: list[pb2.Notification] = []
        self.gaps: list[bool] = []
        self.position = ""
        self._call: Any = ntm.stub.WatchNotifications(request)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for response in self._call:
            self.seen += response.notifications
            self.gaps.append(response.gap)
            self.position = response.resume_from

    async def open(self) -> "Inbox":
        """Wait until the stream is open."""
        await until(lambda: self.position, "the stream says where it stands")
        return self

    @property
    def titles(self) -> list[str]:
        return [each.title for each in self.seen]

    async def leave(self) -> None:
        """Break off the stream."""
        self._call.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


async def listed(ntm: Ntm, user_id: str = "ann", **fields: Any) -> pb2.ListNotificationsResponse:
    return await ntm.stub.ListNotifications(pb2.ListNotificationsRequest(user_id=user_id, **fields))


async def send(ntm: Ntm, *drafts: dict[str, Any]) -> list[bool]:
    messages = [pb2.NotificationDraft(**{**DRAFT, **draft}) for draft in drafts]
    answer = await ntm.stub.PublishNotifications(pb2.PublishNotificationsRequest(notifications=messages))
    return list(answer.kept)


async def test_user_is_notified_of_each_task_end_and_once_per_batch(ntm: Ntm) -> None:
    inbox = await Inbox(ntm).open()
    task_id = (await submit_task(ntm)).task.node_task_id
    await complete(ntm, (await claim_one(ntm)).token)
    await until(lambda: len(inbox.seen) == 1, "the end of the task is told")
    (first,) = inbox.seen
    assert (first.kind, first.severity) == (pb2.NOTIFICATION_KIND_TASK_COMPLETED, pb2.SEVERITY_INFO)
    assert (first.title, first.subject.node_task_id) == (
        f'{task_id} of type "noop" completed',
        task_id,
    )
    batch_id = (await submit_batch(ntm, ["{}"] * 3)).batch.batch_id
    one, two, three = await claim(ntm)
    await complete(ntm, one.token, two.token)
    await fail(ntm, three.token)
    await until(lambda: len(inbox.seen) == 2, "the end of the batch is told")
    last = inbox.seen[-1]
    assert (last.kind, last.severity) == (pb2.NOTIFICATION_KIND_BATCH_FINISHED, pb2.SEVERITY_WARNING)
    assert (last.title, last.message) == (
        f'batch {batch_id} of 3 of type "noop" partly completed',
        "2 completed, 1 failed",
    )
    assert last.subject.batch_id == batch_id
    cancelled = (await submit_task(ntm)).task.node_task_id
    await ntm.stub.CancelTask(batch_pb2.CancelTaskRequest(task_id=cancelled, user_id="ann", reason="too late"))
    await until(lambda: len(inbox.seen) == 3, "the cancelled task is told")
    assert inbox.seen[-1].title == f'{cancelled} of type "noop" was cancelled'
    assert inbox.seen[-1].message == "too late"
    assert [each.title for each in (await listed(ntm)).notifications] == inbox.titles[::-1]
    assert (await listed(ntm, "bob")).notifications == []
    await inbox.leave()


async def test_user_is_notified_of_dead_letters(ntm: Ntm) -> None:
    task_id = (await submit_task(ntm, options=TWICE)).task.node_task_id
    for _ in range(2):
        await fail(ntm, (await claim_one(ntm)).token)
    (failed,) = (await listed(ntm)).notifications
    assert (failed.kind, failed.severity) == (pb2.NOTIFICATION_KIND_TASK_FAILED, pb2.SEVERITY_ERROR)
    assert failed.message == "NODE_ERROR: IOError: it broke (listed as a dead letter)"
    assert failed.subject.node_task_id == task_id
    # Of many failures in a batch only the first is notified, then the end of the batch.
    batch_id = (await submit_batch(ntm, ["{}"] * 5, options=TWICE)).batch.batch_id
    for _ in range(10):
        await fail(ntm, (await claim_one(ntm)).token)
    end, letter, _ = (await listed(ntm)).notifications
    assert end.kind == pb2.NOTIFICATION_KIND_BATCH_FINISHED
    assert end.title == f'batch {batch_id} of 5 of type "noop" failed'
    assert (letter.kind, letter.message) == (pb2.NOTIFICATION_KIND_DEAD_LETTER, "NODE_ERROR: IOError: it broke")
    assert letter.title == f'node task {letter.subject.node_task_id} of type "noop" was given up'
    assert letter.subject.node_task_id.startswith(f"batch:{batch_id}:")
    assert letter.subject.batch_id == batch_id


async def test_returning_watcher_gets_missed_notifications_exactly_once(start: Start) -> None:
    ntm = await start()
    first = await Inbox(ntm).open()
    await send(ntm, {"title": "one"})
    await until(lambda: first.titles == ["one"], "the first is told")
    await first.leave()
    await send(ntm, {"title": "two"}, {"title": "three"})
    await ntm.server.stop()
    again = await start()
    second = await Inbox(again, after=first.position).open()
    await until(lambda: len(second.seen) == 2, "what came meanwhile is told")
    await send(again, {"title": "four"})
    await until(lambda: len(second.seen) == 3, "what comes is told")
    assert second.titles == ["two", "three", "four"]
    assert not any(second.gaps)
    await second.leave()
    new = await Inbox(again).open()
    assert new.position == second.position
    await new.leave()


async def test_watcher_without_notifications_can_resume(ntm: Ntm) -> None:
    first = await Inbox(ntm).open()
    assert first.position == "0-0"
    await first.leave()
    await send(ntm, {"title": "one"})
    second = Inbox(ntm, after=first.position)
    await until(lambda: second.titles == ["one"], "what came meanwhile is told")
    assert not any(second.gaps)
    await second.leave()


async def test_notification_gap_is_reported(start: Start) -> None:
    ntm = await start(node_task_manager_notifications=3)
    first = await Inbox(ntm).open()
    await send(ntm, {"title": "0"})
    await until(lambda: first.seen, "the first is told")
    await first.leave()
    await send(ntm, *({"title": str(at)} for at in range(1, 6)))
    for after in (first.position, "0-0"):
        second = Inbox(ntm, after=after)
        await until(lambda second=second: second.seen, "what is kept is told")
        assert (second.titles, second.gaps) == (["3", "4", "5"], [False, True])
        await second.leave()


async def test_notifications_are_marked_read_up_to_one_or_all(ntm: Ntm) -> None:
    async def mark(through: str) -> int:
        request = pb2.MarkNotificationsReadRequest(user_id="ann", through_notification_id=through)
        return (await ntm.stub.MarkNotificationsRead(request)).unread

    await send(ntm, *({"title": str(at)} for at in range(5)))
    page = await listed(ntm)
    assert (page.unread, [each.title for each in page.notifications]) == (5, ["4", "3", "2", "1", "0"])
    middle = page.notifications[2].notification_id
    assert await mark(middle) == 2
    assert [each.read for each in (await listed(ntm)).notifications] == [False, False, True, True, True]
    assert await mark(page.notifications[4].notification_id) == 2
    assert await mark("") == 0
    await send(ntm, {"title": "5"})
    assert (await listed(ntm)).unread == 1
    pages = [await listed(ntm, page_size=4)]
    pages.append(await listed(ntm, page_size=4, page_token=pages[0].next_page_token))
    assert [each.title for page in pages for each in page.notifications] == ["5", "4", "3", "2", "1", "0"]
    assert (pages[1].unread, pages[1].next_page_token) == (1, "")
    for first in ("0-0", "000-00", "0-1"):
        nothing = await listed(ntm, page_token=page_token(first))
        assert (nothing.unread, nothing.next_page_token, list(nothing.notifications)) == (1, "", [])


async def test_notification_keeps_its_subject_and_is_deduplicated_by_key(ntm: Ntm) -> None:
    about = {"flow_id": "prices", "cycle": 3}
    draft = {"kind": pb2.NOTIFICATION_KIND_FLOW_STOPPED, "severity": pb2.SEVERITY_ERROR, "subject": about, "key": "k"}
    assert await send(ntm, draft, {"message": "until one"}, {**draft, "user_id": "bob"}) == [True, True, True]
    assert await send(ntm, draft, {}) == [False, True]
    *_, first = (await listed(ntm)).notifications
    assert (first.subject.flow_id, first.subject.cycle, first.severity) == ("prices", 3, pb2.SEVERITY_ERROR)
    second = (await listed(ntm)).notifications[-2]
    assert (second.kind, second.severity) == (pb2.NOTIFICATION_KIND_SYSTEM_NOTIFICATION, pb2.SEVERITY_INFO)
    assert (second.title, second.message) == ("maintenance at noon", "until one")
    assert len((await listed(ntm)).notifications) == 3


async def test_bad_input_is_refused_with_every_fault_and_nothing_is_sent(ntm: Ntm) -> None:
    bad: list[dict[str, Any]] = [
        {"user_id": "", "title": "", "message": "x" * 5000, "key": "k" * 200},
        {"kind": pb2.NOTIFICATION_KIND_TASK_FAILED, "title": "two\nlines", "subject": {"batch_id": "b"}},
        {"subject": {"cycle": 1}},
    ]
    code, reason, paths = await refused(send(ntm, {}, *bad))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert paths == [
        *(f"notifications[1].{name}" for name in ("user_id", "title", "message", "key")),
        *(f"notifications[2].{name}" for name in ("kind", "title", "subject")),
        "notifications[3].subject.cycle",
    ]
    assert (await listed(ntm)).notifications == []
    assert (await refused(send(ntm)))[2] == ["notifications"]
    watch: Any = ntm.stub.WatchNotifications(
        pb2.WatchNotificationsRequest(user_id="ann", after_notification_id="yesterday")
    )
    assert (await refused(watch.read()))[2] == ["after_notification_id"]
    read = pb2.MarkNotificationsReadRequest(user_id="ann", through_notification_id="now")
    assert (await refused(ntm.stub.MarkNotificationsRead(read)))[2] == ["through_notification_id"]
    assert (await refused(listed(ntm, page_token="AAAA")))[2] == ["page_token"]


@pytest.mark.timeout(60)
async def test_five_hundred_watchers_share_one_subscriber_connection(ntm: Ntm, admin: Client) -> None:
    tasks = [(await submit_task(ntm)).task.node_task_id for _ in range(10)]
    watches = [TaskWatch(ntm, tasks[at % 10]) for at in range(250)]
    inboxes = [Inbox(ntm) for _ in range(250)]
    await until(lambda: all(each.seen for each in watches), "everybody sees the task", timeout=30)
    await until(lambda: all(each.position for each in inboxes), "everybody stands", timeout=30)
    connections = await pubsub_connections(admin)
    assert len(connections) == 1, connections
    await admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await complete(ntm, *(each.token for each in await claim(ntm)))
    for watch in watches:
        await watch.over()
        assert watch.kinds == ["queued", "running", "completed"]
    await until(lambda: all(len(each.seen) == 10 for each in inboxes), "everybody is told of all", timeout=30)
    assert len({tuple(each.notification_id for each in inbox.seen) for inbox in inboxes}) == 1
    for inbox in inboxes:
        await inbox.leave()
