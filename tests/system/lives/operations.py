"""What users do in a life, at random."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.system.lives import notified, triggers
from tests.system.lives.flows import EVENT, FlowMaker
from tests.system.lives.followers import Followers
from tests.system.lives.notified import Notified
from tests.system.lives.triggers import TriggerUsers
from tradewind.client import Client, CycleHandle, NodeTaskRecord, NotFound
from tradewind.flow import Retry, Timeouts
from tradewind.node_task_manager.stores.memory.records import run_of

FLOWS = tuple(f"f{at}" for at in range(5))


class Users:
    """All users; each method does one thing, mostly to a random flow."""

    def __init__(
        self,
        draw: random.Random,
        clients: Mapping[str, Client],
        now_ms: Callable[[], int],
        *,
        loses_writes: bool,
        workers: int,
        shards: int,
    ) -> None:
        self._draw = draw
        self._clients = list(clients.values())
        self._client = client = self._clients[0]
        self._now_ms = now_ms
        self._loses_writes = loses_writes
        self._workers = workers
        self._shards = shards
        self._numbers = itertools.count()
        self._deletions: Counter[str] = Counter()
        self._answered: set[str] = set()
        """Batches whose submission will not be repeated: a repetition after the deletion would be a new batch."""
        self._make_flow = FlowMaker(draw).make
        self.triggers = TriggerUsers(draw, client, now_ms, loses_writes=loses_writes)
        self.followers = Followers()
        self.notified = Notified(draw, client)
        self.published: list[str] = []
        """The ids of the events that have certainly been published."""
        self.operations = [
            *_weighted(self, WEIGHTS),
            *_weighted(self.triggers, triggers.WEIGHTS),
            *_weighted(self.notified, notified.WEIGHTS),
        ]

    def add(self, users: object, weights: Mapping[str, int]) -> None:
        """Let further users operate as well, so often."""
        self.operations += _weighted(users, weights)

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        """Follow what is submitted, and the notifications."""
        async with self.followers.run(), self.notified.run():
            yield

    async def violations(self, *, forgets: bool) -> list[str]:
        """Return a sentence for everything that they have not got as they must; see there.

        `forgets` says whether the store of the node task managers loses writes.
        """
        found = await self.followers.violations(self._deletions, loses_writes=forgets)
        return found if forgets else found + await self.notified.violations(self.followers.redriven)

    def pick_operation(self) -> tuple[str, Awaitable[object]]:
        """Return an operation, not yet begun, with words for it."""
        operation, flow_id = self._draw.choice(self.operations), self._draw.choice(FLOWS)
        return f"{operation.__name__} {flow_id}", operation(flow_id)

    async def register(self, flow_id: str) -> None:
        """Register another definition of a flow, which may run flows before it: mostly for its first user."""
        of_one = self._draw.random() < 0.7
        client = self._clients[FLOWS.index(flow_id) // 2] if of_one else self._any_client()
        await client.register_flow(flow_id, self._make_flow(flow_id, FLOWS[: FLOWS.index(flow_id)]))

    async def give(self, flow_id: str) -> None:
        """Give a flow to somebody, as it is."""
        flow = (await self._client.get_flow(flow_id)).flow
        await self._any_client().register_flow(flow_id, flow.config)

    async def delete(self, flow_id: str) -> None:
        self._deletions[flow_id] += 1
        await self._client.delete_flow(flow_id)
        await self.register(flow_id)

    async def update(self, flow_id: str) -> None:
        """Change a flow twice, going by what was read once: only one of the changes is accepted."""
        etag = (await self._client.get_flow(flow_id)).flow.etag
        changes = [
            self._client.update_flow(flow_id, {"keep_cycles": 6 + next(self._numbers)}, etag=etag) for _ in range(2)
        ]
        answers = await asyncio.gather(*changes, return_exceptions=True)
        accepted = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(accepted) < 2 or self._loses_writes, f"both changes were accepted: {accepted}"

    async def change(self, flow_id: str) -> None:
        """Change how a flow runs while it runs."""
        choice = self._draw.choice
        changes: tuple[dict[str, Any], ...] = (
            {"overlap": choice(("skip", "queue_one", "queue_all", "cancel_running", "allow"))},
            {"max_running": choice((None, 1, 4))},
            {"failure_policy": choice(("skip_downstream", "fail_fast", "continue"))},
            {"timeout": choice((None, 5, 40))},
            {"keep_cycles": choice((1, 3)), "keep_for": choice((None, "1m"))},
            {"interval": choice((3, 20))},
            {"labels": choice(({"team": "a"}, {"team": "b"}))},
        )
        await self._client.update_flow(flow_id, choice(changes))

    async def start_late(self, flow_id: str) -> None:
        """Start a flow as of a past time."""
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        await self._client.start_flow(flow_id, at=now - timedelta(seconds=self._draw.choice((5, 60, 300))))

    async def mend(self, _: str) -> None:
        """Let doctors mend, although nothing may be wrong."""
        await self._client.run_doctor(mend=True)

    async def look(self, flow_id: str) -> None:
        """Read whatever there is to read of a flow."""
        client = self._client
        await client.explain_flow(flow_id)
        await client.next_executions(flow_id)
        _ = [firing async for firing in client.list_firings(flow_id)]
        await client.describe_cycle(flow_id)
        await client.cycle_statistics(flow_id)
        for at in range(3):
            await client.explain_node(flow_id, f"n{at}")
        _ = [line async for line in client.list_logs(flow_id)]
        assert all([flow.labels == {"team": "a"} async for flow in client.list_flows(labels={"team": "a"})])
        await client.queue_statistics()

    async def roll_back(self, flow_id: str) -> None:
        await self._client.roll_back_flow(flow_id, 1)

    async def start(self, flow_id: str) -> None:
        await self._client.start_flow(flow_id)

    async def pause(self, flow_id: str) -> None:
        await self._client.pause_flow(flow_id)

    async def resume(self, flow_id: str) -> None:
        await self._client.resume_flow(flow_id)

    async def stop(self, flow_id: str) -> None:
        await self._client.stop_flow(flow_id)

    async def backfill(self, flow_id: str) -> None:
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        past = timedelta(seconds=self._draw.choice((30, 120)))
        await self._client.backfill_flow(flow_id, now - past, now, max_running=self._draw.choice((1, 3)))

    async def backfill_and_change(self, flow_id: str) -> None:
        """Begin a long backfill, and do something to the flow while it runs."""
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        await self._client.backfill_flow(
            flow_id, now - timedelta(seconds=600), now, max_running=self._draw.choice((1, 3))
        )
        for _ in range(2):
            await asyncio.sleep(self._draw.choice((0, 1, 10)))
            operations = (self.register, self.change, self.roll_back, self.pause, self.resume, self.stop, self.delete)
            await self._draw.choice(operations)(flow_id)

    async def cancel_backfill(self, flow_id: str) -> None:
        async for backfill in self._client.list_backfills(flow_id):
            await self._client.cancel_backfill(flow_id, backfill.backfill_id)
            return

    async def run(self, flow_id: str) -> None:
        await self._client.run_flow(flow_id)

    async def run_twice(self, flow_id: str) -> None:
        """Ask twice for the same cycle."""
        deletions, request_id = self._deletions[flow_id], f"twice-{next(self._numbers)}"
        wait = self._draw.choice((0, 3, 60))
        calls = [self._client.run_flow(flow_id, {"n": 1}, wait=wait, request_id=request_id) for _ in range(2)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        begun = {(answer.cycle, answer.run) for answer in answers if isinstance(answer, CycleHandle)}
        if self._deletions[flow_id] == deletions and not self._loses_writes:
            assert len(begun) < 2, f"{request_id} began {begun}"

    async def run_many(self, _: str) -> None:
        await self._client.run_flows(self._draw.choices(FLOWS, k=4), wait=self._draw.choice((0, 3)))

    async def rerun(self, flow_id: str) -> None:
        from_nodes = [f"n{self._draw.randrange(5)}"] if self._draw.random() < 0.4 else []
        await self._client.rerun_cycle(flow_id, from_nodes=from_nodes, wait=self._draw.choice((0, 0, 3)))

    async def rerun_many(self, _: str) -> None:
        await self._client.start_bulk_job("rerun", ["f*"], statuses=["failed", "partial"], limit=5)

    async def stop_cycle(self, flow_id: str) -> None:
        await self._client.stop_cycle(flow_id)

    async def stop_many(self, _: str) -> None:
        await self._client.start_bulk_job("stop", ["f*"], limit=3)

    async def cancel_job(self, _: str) -> None:
        async for job in self._client.list_bulk_jobs():
            await self._client.cancel_bulk_job(job.job_id)
            return

    async def stop_component(self, flow_id: str) -> None:
        await self._client.stop_component(flow_id, str(self._draw.randrange(3)))

    async def stop_node(self, flow_id: str) -> None:
        await self._client.stop_node(flow_id, f"n{self._draw.randrange(6)}")

    async def publish_event(self, _: str) -> None:
        event_id = f"event-{next(self._numbers)}"
        await self._client.publish_event(EVENT, {"price": 1}, event_id=event_id)
        self.published.append(event_id)

    async def signal(self, flow_id: str) -> None:
        async for client, task in self._open_node_task(flow_id):
            await client.signal_node(task.node_task_id, "go", 1)

    async def answer(self, flow_id: str) -> None:
        async for client, task in self._open_node_task(flow_id):
            await client.answer_node(task.node_task_id, approved=self._draw.random() < 0.5)

    async def terminate(self, flow_id: str) -> None:
        async for client, task in self._open_node_task(flow_id):
            await client.terminate_node_task(task.node_task_id)

    async def keep_note(self, flow_id: str) -> None:
        await self._client.update_memory(flow_id, {"note": next(self._numbers)})

    async def clear_cache(self, _: str) -> None:
        await self._client.clear_cache("analysis")

    async def drain_worker(self, _: str) -> None:
        await self._client.drain_worker(f"w{self._draw.randrange(self._workers)}")

    async def set_limits(self, _: str) -> None:
        choice = self._draw.choice
        await self._client.update_config(
            max_running=choice((0, 3, 5)),
            max_running_per_user=choice((0, 0, 3)),
            max_running_per_flow=choice((0, 0, 1)),
            max_running_per_node_type=choice(({}, {"work": self._shards})),
            max_concurrent_tasks=choice((0, 2)),
            rates=choice(({}, {}, {"work": "20/m"})),
            user_weights=choice(({}, {"default": 3})),
        )

    async def lift_limits(self) -> None:
        """Let everything run."""
        await self._client.update_config(
            max_running=0,
            max_running_per_user=0,
            max_running_per_flow=0,
            max_running_per_node_type={},
            max_concurrent_tasks=0,
            rates={},
        )

    async def submit_task(self, _: str) -> None:
        client = self._any_client()
        task = await client.submit_task(
            self._draw.choice(("work", "signalled")), request_id=f"task-{next(self._numbers)}"
        )
        self.followers.follow_task(task.task_id, client)
        if self._draw.random() < 0.3:
            await task.cancel()

    async def submit_batch(self, _: str) -> None:
        choice = self._draw.choice
        client = self._any_client()
        batch = await client.submit_batch(
            "each",
            [{"item": at} for at in range(choice((1, 5, 20)))],
            retry=choice((None, Retry(3, initial=1))),
            timeouts=choice((None, Timeouts(total=30), Timeouts(schedule_to_start=2))),
            concurrency=choice((None, None, {"key": "a", "max": 2, "when_full": choice(("wait", "drop_new"))})),
            rate=choice((None, None, {"key": "r", "limit": "10/m"})),
        )
        self.followers.follow_batch(batch.batch_id, client)
        self._answered.add(batch.batch_id)

    async def watch_node(self, flow_id: str) -> None:
        async for client, task in self._open_node_task(flow_id):
            self.followers.follow_task(task.node_task_id, client)

    async def cancel_batch(self, _: str) -> None:
        client = self._any_client()
        async for batch in client.list_batches():
            await client.cancel_batch(batch.batch_id)
            return

    async def delete_batch(self, _: str) -> None:
        client = self._any_client()
        async for batch in client.list_batches():
            if batch.ended and batch.batch_id in self._answered:
                await client.delete_batch(batch.batch_id)
                return

    async def redrive(self, _: str) -> None:
        client = self._any_client()
        ids = [task.node_task_id async for task in client.list_dead_letters()]
        if ids:
            self.followers.redriven.update(run_of(id) for id in ids[:5])
            await client.redrive_dead_letters(ids[:5])

    async def quieten(self, flow_id: str) -> None:
        """Begin nothing more in a flow."""
        with suppress(NotFound):
            if (await self._client.get_flow(flow_id)).flow.status == "running":
                await self._client.pause_flow(flow_id)
            async for backfill in self._client.list_backfills(flow_id):
                if backfill.status == "running":
                    await self._client.cancel_backfill(flow_id, backfill.backfill_id)

    async def _open_node_task(self, flow_id: str) -> AsyncIterator[tuple[Client, NodeTaskRecord]]:
        """Yield some node task of the latest cycle that has not ended, if there is one, and the client of its user."""
        async for cycle in self._client.list_cycles(flow_id):
            open_tasks = [
                (client, task)
                for client in self._clients
                async for task in client.list_node_tasks(flow_id, cycle.cycle)
                if task.status in ("pending", "running", "suspended")
            ]
            if open_tasks:
                yield self._draw.choice(open_tasks)
            return

    def _any_client(self) -> Client:
        return self._draw.choice(self._clients)


def _weighted(users: object, weights: Mapping[str, int]) -> list[Callable[[str], Awaitable[object]]]:
    return [getattr(users, name) for name, weight in weights.items() for _ in range(weight)]


WEIGHTS = {
    "run": 20,
    "rerun": 10,
    "start": 8,
    "stop_cycle": 6,
    "publish_event": 5,
    "register": 8,
    "resume": 4,
    "signal": 4,
    "stop_node": 4,
    "answer": 3,
    "backfill": 3,
    "backfill_and_change": 3,
    "delete": 2,
    "give": 3,
    "pause": 3,
    "submit_batch": 3,
    "terminate": 3,
    "cancel_batch": 2,
    "delete_batch": 2,
    "redrive": 2,
    "set_limits": 2,
    "stop": 2,
    "stop_component": 2,
    "rerun_many": 1,
    "roll_back": 1,
    "stop_many": 1,
    "run_twice": 3,
    "run_many": 2,
    "submit_task": 5,
    "watch_node": 4,
    "update": 2,
    "change": 4,
    "start_late": 2,
    "mend": 2,
    "look": 4,
    "cancel_backfill": 1,
    "cancel_job": 1,
    "keep_note": 1,
    "clear_cache": 1,
    "drain_worker": 1,
}
"""How often each operation is chosen."""
