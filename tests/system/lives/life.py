"""A life of the whole engine: random operations and random faults under a virtual clock, until everything has ended."""

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from tests.system.lives import access_users
from tests.system.lives.access_users import AccessUsers
from tests.system.lives.faults import LONGEST_LOSS_S, Faults
from tests.system.lives.invariants import ended_runs, is_quiet, told_secrets, violations
from tests.system.lives.nodes import Nodes
from tests.system.lives.operations import FLOWS, Users
from tests.system.lives.receivers import Receivers
from tests.system.lives.watchers import Watchers
from tests.system.lives.world import WORKERS, World
from tradewind.client import NotFound, ServerFault, TimedOut, TradewindError, Unavailable
from tradewind.server.faults import Fault
from tradewind.server.logs import quieten_logging
from tradewind.testing.environment import no_settings
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.patches import virtual_clock_and_randomness

Answer = TypeVar("Answer")

STARTS_S = (1_800_000_000, 1_806_195_480, 1_824_944_280)
"""When lives begin: some two minutes before clocks in Berlin go forward, or back."""
OPERATIONS = 70
HOUR_S = 3600
DOCTOR_S = 90
"""How long after a loss doctors have mended what services do not know of each other any more."""
LOSSY_STORES = {2: ("", "node_task_manager"), 3: ("scheduler", "trigger")}
"""Whose stores lose writes, "" for all at once, by the remainder of the seed."""
SHOWN, SHOWN_OF_ANSWER = 40, 120
AWAY = (Unavailable, TimedOut, TimeoutError)
"""What nobody may be answered with while nothing goes wrong. With ServerFault, nobody ever."""


class Life:
    """One life; the seed says everything about it.

    Two of three lives have faults, and every second one has two replicas. In two of five of these, stores lose their
    last writes now and then: all of them, or those of one service.
    """

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._draw = draw = random.Random(seed)
        self.replicas, self.has_faults = 1 + seed % 2, bool(seed % 3)
        lossy_stores = LOSSY_STORES.get(seed % 5, ()) if self.has_faults else ()
        self.loses_writes = bool(lossy_stores)
        self.forgets_attempts = "node_task_manager" in lossy_stores
        self.seed = seed
        self.log: list[str] = []
        """Everything that was done, with its time."""
        self.broken: list[str] = []
        """What was not as it must be in the end."""
        self.nodes = Nodes(random.Random(f"nodes {seed}"))
        shards = draw.choice((1, 2, 3))
        self.world = World(loop, draw, self.replicas, shards=shards, secret=self.nodes.secret)
        self._users = Users(
            draw,
            self.world.clients,
            loop.now_ms,
            loses_writes=self.loses_writes,
            workers=WORKERS,
            shards=shards,
        )
        self._access_users = AccessUsers(draw, self.world.any_access, self.world.channel)
        self._users.add(self._access_users, access_users.WEIGHTS)
        self._receivers = Receivers(random.Random(f"receivers {seed}"), self.world.client)
        self._watchers = Watchers(self.world.client, FLOWS)
        self._faults = Faults(draw, self.world, lossy_stores)

    def report(self) -> str:
        """Say what is broken, how to repeat it, and what was done last."""
        return "\n".join(
            (
                f"life {self.seed} ({self.replicas} replicas, {'' if self.has_faults else 'no '}faults) is broken:",
                *(f"  {sentence[:500]}" for sentence in self.broken),
                f"Repeat it with: make lives LIVES_SEED={self.seed} LIVES_SECONDS=0",
                "What was done last:",
                *(f"  {line}" for line in self.log[-SHOWN:]),
            )
        )

    async def live(self) -> None:
        """Live, and note what is broken in the end."""
        living = asyncio.create_task(self._live())
        stuck = self.world.disturbances.stuck
        either: set[asyncio.Future[Any]] = {living, stuck}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stuck.done():
            self.broken.append(stuck.result())
            living.cancel()
        elif error := living.exception():
            self.broken += traceback.format_exception(error)

    async def _live(self) -> None:
        following = self._receivers.run(), self._watchers.run(), self._users.follow(), self._access_users.run()
        async with self.world.run(self.nodes.all()), AsyncExitStack() as stack:
            for each in following:
                await stack.enter_async_context(each)
            await self._users.triggers.listen_to_all()
            # By now every scheduler knows that somebody listens to the ends of cycles.
            await asyncio.sleep(3)
            for flow_id in FLOWS:
                await self._users.register(flow_id)
            operations = []
            for _ in range(OPERATIONS):
                operations.append(asyncio.create_task(self._operate(*self._users.pick_operation())))
                if self._draw.random() < 0.7:
                    await asyncio.sleep(self._draw.choice((0, 0.001, 0.05, 1, 5, 20)))
                if self.has_faults and (fault := self._faults.maybe()):
                    self._note(f"** {fault}")
            self._faults.end()
            await asyncio.gather(*operations)
            await asyncio.sleep(DOCTOR_S if self.loses_writes else LONGEST_LOSS_S)
            self.broken += await self._diagnosis()
            await self._end()
            self.broken += violations(self.world, counts=not self.forgets_attempts)
            self.broken += self._watchers.violations(self.world, loses_writes=self.loses_writes)
            self.broken += await self._receivers.violations(
                self._users.published, ended_runs(self.world), loses_writes=self.loses_writes
            )
            self.broken += await self._users.violations(forgets=self.forgets_attempts)
            self.broken += await self._access_users.violations()
            for flow_id in FLOWS:
                self.broken += await self._counted_too_much(flow_id)
            if not self.forgets_attempts:
                self.broken += self.nodes.repeated()
            self.broken += told_secrets(self.world, self.nodes.secret)

    async def _operate(self, words: str, operation: Awaitable[object]) -> None:
        self._note(words)
        try:
            async with asyncio.timeout(120):
                await operation
        except (TradewindError, Fault, ConnectionError, TimeoutError) as refusal:
            answer = f"{words}: {type(refusal).__name__}: {str(refusal)[:SHOWN_OF_ANSWER]}"
            self._note(f"   {answer}")
            if isinstance(refusal, ServerFault) or (not self.has_faults and isinstance(refusal, AWAY)):
                self.broken.append(answer)

    async def _end(self) -> None:
        """Begin nothing more, and give everything up to three hours to end: long nodes may have to take turns.

        What stores have lost may take until the hourly question whether a run is open has been asked twice.
        """
        for flow_id in FLOWS:
            await self._insist(partial(self._users.quieten, flow_id))
        await self._insist(self._users.lift_limits)
        await self._insist(self._users.triggers.resume_triggers)
        for _ in range(180):
            await asyncio.sleep(60)
            if is_quiet(self.world):
                break
        await asyncio.sleep(2 * HOUR_S + 120 if self.loses_writes else 120)

    async def _diagnosis(self) -> list[str]:
        """Return what the doctors find although nothing is disturbed any more."""
        diagnosis = await self._insist(self.world.client.run_doctor)
        return [
            f"the doctor of the {each.service} finds {each.check} {each.subject}: {each.problem}"
            for each in diagnosis.findings
        ]

    async def _counted_too_much(self, flow_id: str) -> list[str]:
        """Return a sentence if the nodes of a flow have counted more often than they ran."""
        try:
            memory = await self.world.client.get_memory(flow_id)
        except NotFound:
            return []
        counted, most = memory.variables.get("count", 0), len(self.nodes.counted[flow_id])
        return [f"{most} nodes of flow {flow_id} counted, and came to {counted}"] if counted > most else []

    async def _insist(self, operation: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do something, although replicas may still be starting. Raises TradewindError when it keeps failing."""
        for _ in range(20):
            try:
                return await operation()
            except TradewindError:
                await asyncio.sleep(2)
        return await operation()

    def _note(self, words: str) -> None:
        self.log.append(f"{self.world.seconds:10.3f} s  {words}")


def live(seed: int) -> Life:
    """Return a life that is over."""
    loop = VirtualLoop(STARTS_S[seed // 2 % 3] * 10**9)
    quieten_logging("critical")

    async def main() -> Life:
        life = Life(loop, seed)
        await life.live()
        return life

    with no_settings(), virtual_clock_and_randomness(loop, seed), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())
