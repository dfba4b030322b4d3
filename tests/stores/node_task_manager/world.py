"""A random actor that does the same to memory and Redis and compares what comes of it and all that can be seen."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.stores.node_task_manager.fan_outs import Offered, join, public, random_split
from tests.stores.node_task_manager.invariants import run_of
from tests.stores.node_task_manager.random_plans import AD_HOC, BATCH, TASK_PLANS, TYPES
from tests.stores.node_task_manager.reruns import random_rerun
from tests.stores.node_task_manager.shards import RedisShard, Whole
from tests.stores.node_task_manager.waits import random_report, random_signal, random_wait, suspended
from tradewind.node_task_manager.domain.component import Release, RunSubmission, SubmitOutcome
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import TRANSITIONS, NodeTask, NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.notification import Fact, NotificationKind
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.domain.retry import RetryWish
from tradewind.node_task_manager.domain.sub_flow import SubFlowEvent
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.task_event import TaskEvent, WatchOutcome
from tradewind.node_task_manager.domain.work import (
    Assignment,
    Effects,
    Held,
    Outcome,
    OutcomeKind,
    Postponed,
    Termination,
    Vacancy,
)
from tradewind.node_task_manager.ports.events import Event
from tradewind.node_task_manager.ports.node_tasks import Cleaned
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.server.clock import ManualClock
from tradewind.server.rates import Rate

WORKERS = ("w1", "w2", "w3")
USERS = ("ann", "bob")
FLOWS = ("f", "g")
LARGE = '"' + "v" * 5000 + '"'
VERBS = {"submit": 4.0, "claim": 5, "end": 8, "lapse": 2, "renew": 2, "reconnect": 1, "give_back": 1, "stop": 1}
WANTED = NotificationKind.ANSWER_WANTED
OF_FLOWS = (NotificationKind.DEAD_LETTER, NotificationKind.CYCLE_FAILED)
SETTLE_MS = 5_000
"""How long runs that have ended stay in any case: short, so that some go."""
CLEAN_KEYS = 15
"""What a step of cleaning may touch: little, so that there are many."""
RETRIES = 3
"""Further attempts that a flow may have within a minute at any rate: few, so that they are used up."""
VERBS |= {"pass_on": 1, "begin_process": 0.5, "terminate": 1, "note": 1, "purge": 0.3, "configure": 0.5}
VERBS |= {"postpone": 1, "hasten": 1, "fan_out": 3}
VERBS |= {"acknowledge": 1.5, "clean": 1.5, "signal": 3, "report_sub_flows": 3}
VERBS["read_notifications"] = 0.3
VERBS |= {"release": 1, "rerun": 2, "watch": 2}


@dataclass(frozen=True)
class Pair:
    """An attempt as both stores know it: nonces differ, all else must not."""

    memory: Assignment
    redis: Assignment


@dataclass
class World:
    """Both stores, and what the random actor knows.

    With `cut` Redis does what memory does at once in many scripts. Then only claims hand out node tasks, of one user
    and one type at a time: whose turn it is depends on whether a queue was empty between two scripts. Nor are there
    nodes then that stop others by failing while they wait.
    """

    rng: random.Random
    clock: ManualClock
    memory: Whole
    redis: RedisShard
    plans: dict[str, Plan]
    cut: bool
    pairs: list[Pair] = field(default_factory=list)
    runs: dict[str, RunSubmission] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    cycle: int = 0
    forgotten: int = 0
    config: SystemConfig = field(default_factory=SystemConfig)
    waits: dict[str, int] = field(default_factory=dict)
    """Until when node tasks must not begin again, as Redis last told."""
    begun: list[tuple[int, str]] = field(default_factory=list)
    """When attempts of nodes that may be tried again began, and on whose budget."""
    granted: list[tuple[int, str]] = field(default_factory=list)
    """When further attempts were granted, and on whose budget, as far as they were seen."""
    positions: dict[str, list[str]] = field(default_factory=dict)
    """Where events of each task were seen, those that are gone among them."""
    ended: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """How node tasks have ended, as Redis first told."""
    watched: dict[str, bool] = field(default_factory=dict)
    """Node tasks of flows whose events are kept, and whether they were from before anything had happened to them."""
    offered: dict[str, Offered] = field(default_factory=dict)
    """The latest offer of each mapped node."""

    async def act(self) -> None:
        """Do something."""
        verb = self.rng.choices(list(VERBS), list(VERBS.values()))[0]
        await getattr(self, verb)()

    async def both(self, verb: str, memory_args: Sequence[Any], redis_args: Sequence[Any] | None = None) -> Any:
        """Do the same to both; let Redis do what it put off, then compare what came of it."""
        of_memory = await getattr(self.memory, verb)(*memory_args)
        of_redis = await getattr(self.redis, verb)(*(memory_args if redis_args is None else redis_args))
        if isinstance(of_memory, Effects):
            of_redis = await self._drained(of_redis)
            self._compare(verb, of_memory, of_redis)
        else:
            self._compare(verb, of_memory.effects, await self._drained(of_redis.effects))
        return of_memory, of_redis

    async def _drained(self, effects: Effects) -> Effects:
        terminations, partitions, todo = list(effects.terminations), list(effects.partitions), effects.todo
        fan_outs = list(effects.fan_outs)
        due_in = effects.due_in
        while todo:
            more = await self.redis.claim()
            terminations += more.terminations
            partitions += more.partitions
            fan_outs += more.fan_outs
            # A claim for nobody says nothing of types that wait for their rate.
            todo, due_in = more.todo, min((at for at in (due_in, more.due_in) if at >= 0), default=-1)
        drained = replace(effects, terminations=tuple(terminations), partitions=tuple(partitions))
        return replace(drained, todo=0, due_in=due_in, fan_outs=tuple(fan_outs))

    def _compare(self, verb: str, memory: Effects, redis: Effects) -> None:
        assert [_public(a) for a in memory.assignments] == [_public(a) for a in redis.assignments], verb
        stops = [
            sorted((t.worker_id, t.task_id, t.attempt, t.stop) for t in each.terminations) for each in (memory, redis)
        ]
        assert stops[0] == stops[1], verb
        assert sorted(memory.partitions) == sorted(redis.partitions), verb
        assert sorted(memory.stale_workers) == sorted(redis.stale_workers), verb
        assert sorted(memory.ready_types) == sorted(redis.ready_types), verb
        offers = zip(sorted(memory.fan_outs, key=public), sorted(redis.fan_outs, key=public), strict=True)
        for of_memory, of_redis in offers:
            assert public(of_memory) == public(of_redis), verb
            self.offered[of_memory.task_id] = Offered(of_memory, of_redis)
        # Redis may tell of one that the same script took out, which wakes somebody early, but never late.
        assert memory.due_in < 0 or 0 <= redis.due_in <= memory.due_in, verb
        for assignment in redis.assignments:
            assert self.waits.pop(assignment.task_id, 0) <= self.clock(), f"{assignment.task_id} began before its time"
            retry = self.plans[assignment.plan].nodes[assignment.index].retry
            if retry and retry.attempts > 1 and verb not in ("renew", "pass_on"):
                self.begun.append((self.clock(), _spender(assignment.task_id, assignment.user_id)))
        # A stop tells of what its own script did.
        if verb != "stop" or not self.cut:
            assert memory.results == redis.results, verb
        self.pairs += [Pair(m, r) for m, r in zip(memory.assignments, redis.assignments, strict=True)]

    def vacancies(self) -> list[Vacancy]:
        """Draw workers with room, some with a session, some of them stale."""
        one_type = self.rng.choice(TYPES)
        return [
            Vacancy(
                worker,
                max(0, self.sessions.get(worker, 0) - (self.rng.random() < 0.1)),
                self.rng.randint(0, 4),
                (one_type,) if self.cut else tuple(self.rng.sample(TYPES, self.rng.randint(1, 2))),
                self.rng.choice((1, 4, 10)),
            )
            for worker in self.rng.sample(WORKERS, self.rng.randint(0, 3))
        ]

    def _also(self) -> list[Vacancy]:
        return [] if self.cut else self.vacancies()

    async def submit(self) -> None:
        runs = [
            self._again() if self.runs and self.rng.random() < 0.15 else self._run()
            for _ in range(self.rng.randint(1, 3))
        ]
        if self.rng.random() < 0.1:
            await self._stop(self.rng.choice(runs))
        of_memory, of_redis = await self.both("submit", (runs, self._also()))
        assert of_memory.results == of_redis.results
        for run, result in zip(runs, of_memory.results, strict=True):
            if result.outcome is SubmitOutcome.ACCEPTED:
                self.runs[str(run.run)] = run

    def _run(self) -> RunSubmission:
        self.cycle += 1
        if self.rng.random() < 0.2:
            return self._ad_hoc()
        chosen = self.rng.sample([each for each in self.plans if each not in AD_HOC], self.rng.choice((1, 1, 1, 2, 3)))
        if self.rng.random() < 0.03:
            chosen[-1] = "unknown"
        return RunSubmission(
            RunName(self.rng.choice(FLOWS), self.cycle, 0),
            f"r{self.cycle}",
            USERS[0] if self.cut else self.rng.choice(USERS),
            tuple((str(at), digest) for at, digest in enumerate(chosen)),
            partition=self.rng.randint(0, 1),
            inputs_json=self.rng.choice(("", '{"x":1}')),
            traceparent=self.rng.choice(("", "00-1-2-01")),
            planned_ms=self.rng.choice((0, 5, self.clock() + 700)),
            begun_ms=self.clock(),
            keep_cycles=self.rng.choice((0, 1, 2)),
            withheld=tuple(str(at) for at in range(len(chosen)) if self.rng.random() < 0.15),
            # Over before it is looked at, or long after the test.
            keep_for_ms=self.rng.choice((0, 0, SETTLE_MS // 2, 10**8)),
        )

    def _ad_hoc(self) -> RunSubmission:
        """A task, or a batch."""
        task = self.rng.random() < 0.5
        return RunSubmission(
            RunName.of_task(f"t{self.cycle}") if task else RunName.of_batch(f"b{self.cycle}"),
            f"r{self.cycle}",
            USERS[0] if self.cut else self.rng.choice(USERS),
            (("0", self.rng.choice(list(TASK_PLANS)) if task else BATCH.digest),),
            partition=-1,
            node_type="t1",
        )

    def _again(self) -> RunSubmission:
        run = self.rng.choice(list(self.runs.values()))
        return run if self.rng.random() < 0.7 else replace(run, run_id="other")

    async def rerun(self) -> None:
        """Run a run again that has ended, keeping some of its results."""
        rerun = await random_rerun(self.rng, self.memory, self.runs, self.plans, self.clock())
        if rerun is not None:
            of_memory, of_redis = await self.both("submit", ([rerun], self._also()))
            assert of_memory.results == of_redis.results
            if of_memory.results[0].outcome is SubmitOutcome.ACCEPTED:
                self.runs[str(rerun.run)] = rerun

    async def claim(self) -> None:
        await self.both("claim", (self.vacancies(),))

    async def fan_out(self) -> None:
        """Carry out offers of mapped nodes, now and then one that was carried out before."""
        chosen = self.rng.sample(list(self.offered.values()), min(2, len(self.offered)))
        for offered in chosen:
            if self.rng.random() < 0.8:
                await self._carry_out(offered)

    async def _carry_out(self, offered: Offered) -> None:
        offer = offered.memory
        node = self.plans[offer.plan].nodes[offer.index]
        assert node.fan_out is not None
        if offer.total:
            of_memory, of_redis = await join(self.memory, offer), await join(self.redis, offered.redis)
            assert of_memory.outputs == of_redis.outputs
        else:
            of_memory, of_redis = random_split(self.rng, offered, node.fan_out)
        vacancies = self._also()
        await self.both("fan_out", ([of_memory], vacancies), ([of_redis], vacancies))

    async def end(self) -> None:
        outcomes: list[tuple[Outcome, Outcome]] = []
        for _ in range(self.rng.randint(0, 5) if self.pairs else 0):
            # New attempts for the most part, some that ended or were lost long ago, now and then one twice.
            recent = self.pairs[-8:] if self.rng.random() < 0.8 else self.pairs
            outcomes.append(self._outcome(self.rng.choice(recent)))
            if self.rng.random() < 0.1:
                outcomes.append(outcomes[-1])
        args = [[outcome[at] for outcome in outcomes] for at in (0, 1)]
        vacancies = self._also()
        await self.both("complete", (args[0], vacancies), (args[1], vacancies))

    def _outcome(self, pair: Pair) -> tuple[Outcome, Outcome]:
        node = self.plans[pair.memory.plan].nodes[pair.memory.index]
        # What may be tried again fails for the most part, so that waits and budgets come into play; not so items.
        often = node.retry is None or node.fan_out is not None
        kind = self.rng.choices(list(OutcomeKind), (8, 2, 1, 3) if often else (3, 8, 1, 2))[0]
        error = None
        if kind in (OutcomeKind.FAILED, OutcomeKind.TERMINATED):
            error = TaskError("NODE_ERROR", "broke", self.rng.choice(("IOError", "IOError", "ValueError")))
        wish = None
        if kind is OutcomeKind.FAILED and self.rng.random() < 0.3:
            wish = RetryWish(self.rng.choice((None, 0, 3_000, 90_000)), none=self.rng.random() < 0.2)
        completed = kind is OutcomeKind.COMPLETED
        wait = random_wait(self.rng, self.clock()) if kind is OutcomeKind.SUSPENDED else None
        handles = [handle for handle in ("x", "y") if completed and self.rng.random() < 0.7]
        outputs = tuple((handle, self.rng.choice(("1", "null", LARGE))) for handle in handles)
        cache = self.rng.choice(("", "", "screening")) if completed else ""
        if self.rng.random() < 0.05:
            # The store lost its last second and with it a newer attempt.
            self.forgotten += 1
            given = replace(pair.memory, attempt=pair.memory.attempt + 1, nonce=f"forgotten{self.forgotten}")
            pair = Pair(given, given)
            # It takes the place of what waits for its next attempt, and may go on sooner.
            self.waits.pop(given.task_id, None)
        of_memory, of_redis = (
            Outcome(a.task_id, a.attempt, a.nonce, kind, outputs, error, wish, cache, wait)
            for a in (pair.memory, pair.redis)
        )
        return of_memory, of_redis

    async def lapse(self) -> None:
        self.clock.advance(self.rng.choice((1, 500, 2_000, 11_000, 31_000, 70_000)))
        await self.both("reap", (self._also(),))

    def _some_held(self, worker: str) -> tuple[list[Held], list[Held]]:
        """Draw tokens of a worker, now and then one of another's."""
        chance = {True: 0.5, False: 0.03}
        mine = [pair for pair in self.pairs if self.rng.random() < chance[pair.memory.worker_id == worker]]
        return [_held(pair.memory) for pair in mine], [_held(pair.redis) for pair in mine]

    async def renew(self) -> None:
        worker = self.rng.choice(WORKERS)
        of_memory, of_redis = self._some_held(worker)
        session = self.sessions.get(worker, 0)
        before = len(self.pairs)
        a, b = await self.both("renew", (worker, session, of_memory), (worker, session, of_redis))
        del self.pairs[before:]
        assert (a.session_current, a.lease_deadline) == (b.session_current, b.lease_deadline)
        index = {m.nonce: r.nonce for m, r in zip(of_memory, of_redis, strict=True)}
        assert [(index[nonce], why) for nonce, why in a.lost] == list(b.lost)

    async def reconnect(self) -> None:
        worker = self.rng.choice(WORKERS)
        of_memory, of_redis = self._some_held(worker)
        incarnation, vacancies = self.rng.choice(("i1", "i2")), self._also()
        a, b = await self.both(
            "open_session",
            (worker, incarnation, of_memory, vacancies),
            (worker, incarnation, of_redis, vacancies),
        )
        index = {m.nonce: r.nonce for m, r in zip(of_memory, of_redis, strict=True)}
        assert (a.session, [index[nonce] for nonce in a.lost]) == (b.session, list(b.lost))
        self.sessions[worker] = a.session

    async def give_back(self) -> None:
        worker = self.rng.choice(WORKERS)
        session, vacancies = self.sessions.get(worker, 0), self._also()
        if self.rng.random() < 0.5:
            await self.both("give_back", (worker, session, None, vacancies))
        else:
            of_memory, of_redis = self._some_held(worker)
            await self.both(
                "give_back", (worker, session, of_memory, vacancies), (worker, session, of_redis, vacancies)
            )

    async def postpone(self) -> None:
        """Take back some that their workers never got, now and then one that ended long ago."""
        recent = self.pairs[-8:] if self.rng.random() < 0.8 else self.pairs
        chosen = self.rng.sample(recent, min(self.rng.randint(0, 3), len(recent)))
        wait = self.rng.choice((0, 1, 3_000, 40_000))
        of_memory, of_redis = (
            [Postponed(a.task_id, a.attempt, a.nonce, wait) for a in each]
            for each in ([pair.memory for pair in chosen], [pair.redis for pair in chosen])
        )
        await self.both("postpone", (of_memory,), (of_redis,))

    async def hasten(self) -> None:
        """Make some ready that wait, some of them for a next attempt, and others that do not wait at all."""
        waiting = [task_id for task_id in self.waits if self.rng.random() < 0.7]
        chosen = {*waiting, *(pair.memory.task_id for pair in self.pairs[-2:]), "f:99999:0:unknown"}
        names = sorted(chosen)
        of_memory, _ = await self.both("hasten", (names,))
        for task_id, why in zip(names, of_memory.results, strict=True):
            if not why:
                self.waits.pop(task_id, None)

    async def begin_process(self) -> None:
        await self.both("begin_process", (self.rng.choice(WORKERS), self.rng.choice(("i1", "i2"))))

    async def pass_on(self) -> None:
        if self.pairs:
            pair, to = self.rng.choice(self.pairs[-8:]), self.rng.choice(WORKERS)
            giver = pair.memory.worker_id if self.rng.random() < 0.9 else self.rng.choice(WORKERS)
            await self.both("pass_on", (giver, _held(pair.memory), to), (giver, _held(pair.redis), to))

    async def stop(self) -> None:
        if self.runs:
            await self._stop(self.rng.choice(list(self.runs.values())))

    async def _stop(self, run: RunSubmission) -> None:
        component_id = self.rng.choice(("", self.rng.choice(run.components)[0]))
        run_id = run.run_id if self.rng.random() < 0.9 else "other"
        await self.both("stop", (run.run, run_id, component_id, "enough", "ann", 10**9))

    async def release(self) -> None:
        """Let components begin, or skip them, now and then such as are not withheld."""
        holding = [run for run in self.runs.values() if run.withheld]
        if holding:
            run = self.rng.choice(holding)
            run_id = run.run_id if self.rng.random() < 0.9 else "other"
            chosen = self.rng.sample(run.components, self.rng.randint(1, len(run.components)))
            await self._release(run, run_id, [component_id for component_id, _ in chosen])

    async def _release(self, run: RunSubmission, run_id: str, ids: Sequence[str]) -> None:
        told = [Release(each, self.rng.choice(("", '{"outcome":1}')), self.rng.choice(("", "", "no"))) for each in ids]
        await self.both("release", (run.run, run_id, told))

    async def terminate(self) -> None:
        if self.runs:
            run = self.rng.choice(list(self.runs.values()))
            component_id, digest = self.rng.choice(run.components)
            nodes = self.plans[digest].nodes
            place = self.rng.randrange(len(nodes))
            task_id = run.run.task_id(nodes[place].node_id)
            if nodes[place].fan_out is not None and self.rng.random() < 0.5:
                task_id += f":{self.rng.randint(0, 3)}"
            await self.both("terminate", (task_id, component_id, place, "no", "bob"))

    async def signal(self) -> None:
        """Signal some node tasks, most of which wait, now and then twice at once."""
        waiting = await suspended(self.memory, await self._ids())
        for task in self.rng.sample(waiting, min(2, len(waiting))):
            sent = random_signal(self.rng, task.component_id, task.task_id, task)
            for _ in range(self.rng.choice((1, 1, 2))):
                await self.both("signal", (sent,))
        if self.runs and self.rng.random() < 0.5:
            run = self.rng.choice(list(self.runs.values()))
            component_id, digest = self.rng.choice(run.components)
            task_id = run.run.task_id(self.rng.choice(self.plans[digest].nodes).node_id)
            (known,) = await self.memory.tasks([task_id])
            await self.both("signal", (random_signal(self.rng, component_id, task_id, known),))

    async def report_sub_flows(self) -> None:
        """Say what became of cycles that some node tasks wait for, now and then twice."""
        waiting = await suspended(self.memory, await self._ids())
        of_flows = [task for task in waiting if task.wait is not None and task.wait.flow_id]
        for task in self.rng.sample(of_flows, min(2, len(of_flows))):
            report = random_report(self.rng, self._run_id_of(task), task)
            await self.both("report_sub_flows", ([report] * self.rng.choice((1, 1, 2)),))

    def _run_id_of(self, task: NodeTask) -> str:
        return self.runs[str(TaskName.parse(task.task_id).run)].run_id

    async def watch(self) -> None:
        """Watch some node task of a flow, maybe one that is watched, or an item that has not begun."""
        flows = [run for run in self.runs.values() if not run.run.ad_hoc]
        if not flows:
            return
        run = self.rng.choice(flows)
        component_id, digest = self.rng.choice(run.components)
        node = self.rng.choice(self.plans[digest].nodes)
        item = f":{self.rng.randint(0, 3)}" if node.fan_out and self.rng.random() < 0.5 else ""
        within = node.node_id + item
        (before,) = await self.memory.tasks([run.run.task_id(within)])
        outcomes = [await shard.watch_task(run.run, component_id, within) for shard in (self.memory, self.redis)]
        assert outcomes[0] is outcomes[1], within
        if outcomes[0] is WatchOutcome.NEW:
            self.watched[run.run.task_id(within)] = before is None

    async def note(self) -> None:
        for pair in self.rng.sample(self.pairs, min(3, len(self.pairs))):
            at = self.rng.randint(0, 100)
            kept = []
            for shard, a in ((self.memory, pair.memory), (self.redis, pair.redis)):
                line = Line(a.task_id, a.nonce, "INFO", "node", f"at {at}", self.clock())
                kept.append(
                    await shard.record([Progress(a.task_id, a.nonce, at, "so far", f"step {at // 25}")], [line])
                )
            assert kept[0] == kept[1]

    async def purge(self) -> None:
        # What is due wakes in both; the submissions below, which only Redis gets, have nothing left to wake.
        await self.both("claim", ((),))
        flow = self.rng.choice(FLOWS)
        of_memory = await self.memory.purge(flow)
        terminations: list[Termination] = []
        removed, done = 0, False
        while not done:
            of_redis = await self.redis.purge(flow)
            terminations += of_redis.effects.terminations
            removed += of_redis.removed
            done = of_redis.done
            late = [run for run in self.runs.values() if run.run.flow_id == flow]
            if late:
                # What was begun before is refused from the first call on, though it may be there in part.
                submitted = await self.redis.submit([self.rng.choice(late)])
                assert submitted.results[0].outcome in (SubmitOutcome.FLOW_PURGED, SubmitOutcome.DUPLICATE)
        assert of_memory.removed == removed
        assert sorted(t.task_id for t in of_memory.effects.terminations) == sorted(t.task_id for t in terminations)
        self.runs = {name: run for name, run in self.runs.items() if run.run.flow_id != flow}
        # A flow of this name has a budget of its own from now on.
        self.granted = [(at, whose) for at, whose in self.granted if whose != flow]
        self.clock.advance(1)

    async def configure(self) -> None:
        """Set other limits, now and then none."""
        self.config = SystemConfig(
            max_running=self.rng.choice((0, 0, 3, 8)),
            max_running_per_user=self.rng.choice((0, 0, 1, 2, 5)),
            max_running_per_flow=self.rng.choice((0, 0, 2)),
            max_concurrent_tasks=self.rng.choice((0, 1, 2)),
            max_running_per_node_type={} if self.rng.random() < 0.5 else {TYPES[0]: self.rng.randint(1, 3)},
            rates={}
            if self.rng.random() < 0.7
            else {TYPES[1]: Rate(self.rng.randint(1, 4), self.rng.choice((1_000, 60_000)))},
            user_weights={} if self.rng.random() < 0.5 else {"ann": self.rng.choice((3.0, 0.3))},
            version=self.config.version + 1,
        )
        await self.redis.save_config(self.config)
        for shard in (self.memory, self.redis):
            shard.configure(self.config)
        await self.both("reopen", (self._also(),))

    async def acknowledge(self) -> None:
        """Take some of the events of a partition as a scheduler would, up to one instant: those of the same one come in
        an order of each store's own."""
        partition, count = self.rng.randint(0, 1), self.rng.randint(1, 5)
        known = [await shard.read({partition: "0"}, 10_000) for shard in (self.memory, self.redis)]
        if known[0]:
            until = known[0][:count][-1].at
            for shard, events in zip((self.memory, self.redis), known, strict=True):
                await shard.acknowledge({partition: [each for each in events if each.at <= until][-1].event_id})

    async def clean(self) -> None:
        """Clean until nothing is left to do; what is open is not touched, and of the rest as much goes in both."""
        self.clock.advance(self.rng.choice((0, 0, SETTLE_MS)))
        of_memory = await self.memory.clean("c1", 0)
        steps = await self.sweep()
        assert all((step.leads, step.waits) == (of_memory.leads, of_memory.waits) for step in steps)
        removed = sum(step.runs for step in steps), sum(step.node_tasks for step in steps)
        assert removed == (of_memory.runs, of_memory.node_tasks)
        standing = [name for name, run in self.runs.items() if await self.memory.component_ids(run.run)]
        for name in self.runs.keys() - set(standing):
            assert not await self.redis.component_ids(self.runs[name].run), name
        self.runs = {name: self.runs[name] for name in standing}

    async def sweep(self) -> list[Cleaned]:
        """Clean Redis until nothing is left to do."""
        steps = [await self.redis.clean("c1", 0)]
        while steps[-1].more:
            steps.append(await self.redis.clean("c1", steps[-1].place))
        # A step ends with the run that it looks at.
        assert all(step.keys <= CLEAN_KEYS + 20 for step in steps), steps
        return steps

    async def end_all(self) -> None:
        """Let everything end: work that is done, leases and waits that run out."""
        for _ in range(100):
            before = len(self.pairs)
            for node_type in TYPES:
                await self.both(
                    "claim", ([Vacancy(each, self.sessions.get(each, 0), 50, (node_type,)) for each in WORKERS],)
                )
            for offered in list(self.offered.values()):
                await self._carry_out(offered)
            self.offered = {}
            for run in [run for run in self.runs.values() if run.withheld]:
                await self._release(run, run.run_id, run.withheld)
            outcomes = [self._outcome(pair) for pair in self.pairs[before:]]
            await self.both("complete", ([m for m, _ in outcomes], ()), ([r for _, r in outcomes], ()))
            for task in await suspended(self.memory, await self._ids()):
                if task.wait is not None and task.wait.flow_id:
                    report = random_report(self.rng, self._run_id_of(task), task, ends=True)
                    await self.both("report_sub_flows", ([report],))
                    continue
                await self.both("signal", (random_signal(self.rng, task.component_id, task.task_id, task),))
            self.clock.advance(100_000)
            await self.both("reap", ())
            await self.compare()
            components = await self.memory.components(
                [(run.run, component_id) for run in self.runs.values() for component_id, _ in run.components]
            )
            if all(component is None or not component.open for component in components):
                break
        else:
            raise AssertionError("runs did not end")

    async def wind_down(self) -> None:
        """Let everything end, and clean up."""
        await self.end_all()
        for shard in (self.memory, self.redis):
            events = await shard.read({0: "0", 1: "0"}, 10_000)
            await shard.acknowledge({event.partition: event.event_id for event in events})
        await self.clean()
        await self.compare_the_rest()
        self.clock.advance(24 * 3600 * 1000 + 1)
        await self.both("reap", ())

    async def compare(self) -> None:
        """Everything that can be seen of both stores is the same."""
        names = [(run.run, component_id) for run in self.runs.values() for component_id, _ in run.components]
        ids = await self._ids()
        seen = []
        for shard in (self.memory, self.redis):
            events = await shard.read({0: "0", 1: "0"}, 10_000)
            seen.append(
                {
                    "tasks": [_record(task) for task in await shard.tasks(ids, inputs=True, outputs=True)],
                    "components": await shard.components(names),
                    "held": [sorted(await shard.held_by(worker)) for worker in WORKERS],
                    "events": sorted((replace(event, event_id="") for event in events), key=_order_of),
                }
            )
        for what, of_memory in seen[0].items():
            assert of_memory == seen[1][what], what
        for component in seen[0]["components"]:
            running = sum(task["status"] == "running" for task in seen[0]["tasks"] if _is_of(task, component))
            assert component is None or component.running == (running if component.run.ad_hoc else 0), component
        for task in await self.redis.tasks(ids):
            if task is not None and task.status.terminal:
                end = (task.status, task.ended_at, task.attempt, task.failures)
                assert self.ended.setdefault(task.task_id, end) == end, f"{task.task_id} ended twice"
            elif task is not None and task.status is NodeTaskStatus.PENDING and task.retry_at and task.failures:
                if self.waits.get(task.task_id) != task.retry_at != task.postponed:
                    user_id = self.runs[str(TaskName.parse(task.task_id).run)].user_id
                    self._grant(_spender(task.task_id, user_id))
                self.waits[task.task_id] = task.retry_at

    def _is_mapped(self, task: NodeTask) -> bool:
        name = TaskName.parse(task.task_id)
        plan = self.plans[dict(self.runs[str(name.run)].components)[task.component_id]]
        return name.item < 0 and plan.nodes[task.index].fan_out is not None

    async def _ids(self) -> list[str]:
        """All node tasks, those of items that have not begun among them."""
        ids = sorted(
            {
                run.run.task_id(node.node_id)
                for run in self.runs.values()
                for _, digest in run.components
                if digest in self.plans
                for node in self.plans[digest].nodes
            }
        )
        sizes = {task.task_id: task.items.total for task in await self.redis.tasks(ids) if task and task.items}
        return ids + [f"{task_id}:{place}" for task_id, total in sizes.items() for place in range(total)]

    def _grant(self, spender: str) -> None:
        """Note a further attempt: within a minute a flow has no more of them than its budget."""
        now = self.clock()
        self.granted.append((now, spender))
        granted = sum(at > now - 60_000 and whose == spender for at, whose in self.granted)
        begun = sum(at > now - 65_000 and whose == spender for at, whose in self.begun)
        assert granted <= max(RETRIES, begun * 20 // 100), f"{granted} further attempts of {spender} in a minute"

    async def _dead_letters(self, shard: Whole, user: str) -> list[tuple[int, str]]:
        """Read them in pages of two."""
        found: list[tuple[int, str]] = []
        while page := await shard.dead_letters(user, found[-1] if found else None, 2):
            found += page
        return found

    async def compare_notices(self) -> None:
        """Events of tasks and notifications are the same, from the first on and from any position."""
        self.watched = {each: fresh for each, fresh in self.watched.items() if run_of(each) in self.runs}
        tasks = [name for name in self.runs if name.startswith("task:")]
        for run in (*tasks, *self.watched):
            whole = await self.memory.task_events(run, "0-0", 1000)
            assert await self.redis.task_events(run, "0-0", 1000) == whole, run
            (record,) = await self.redis.tasks([run])
            if not whole.entries:
                # Nothing has happened since it is watched.
                assert not self.watched[run] or record is None or record.status is NodeTaskStatus.REGISTERED, run
                continue
            assert record is not None
            _check_events(record, whole.entries, mapped=self._is_mapped(record))
            newest = whole.entries[-1]
            assert await self.redis.newest_task_event(run) == newest == await self.memory.newest_task_event(run)
            self.positions.setdefault(run, []).extend(event.event_id for event in whole.entries)
        told = sorted(self.positions.keys() & {*tasks, *self.watched})
        for run in self.rng.sample(told, min(3, len(told))):
            after, limit = self.rng.choice(self.positions[run]), self.rng.choice((1, 2, 100))
            assert await self.memory.task_events(run, after, limit) == await self.redis.task_events(run, after, limit)
        for user in USERS:
            listed = []
            for shard in (self.memory, self.redis):
                notifications, unread = await shard.list_notifications(user, "", 1000)
                facts = [each.fact for each in reversed(notifications)]
                # Within one script the stores may come to things in another order; so which of a flow's is told.
                named = [
                    Fact(fact.kind, fact.subject.partition(":")[0], fact.at) if fact.kind in OF_FLOWS else fact
                    for fact in facts
                ]
                listed.append((sorted(named, key=lambda fact: (fact.at, fact.kind, fact.subject)), unread))
                found = (await shard.notifications(user, "0-0", 1000)).entries
                assert [each.fact for each in found] == facts
            assert listed[0] == listed[1]
            ends = [fact.subject for fact in listed[0][0] if fact.kind not in (*OF_FLOWS, WANTED)]
            mine = [name for name, run in self.runs.items() if run.user_id == user and run.run.ad_hoc]
            states = await self.redis.components([(self.runs[name].run, "0") for name in mine])
            ended = [name for name, state in zip(mine, states, strict=True) if state and state.finished_at]
            assert sorted(ends) == sorted(ended), "a user hears once of each end"

    async def read_notifications(self) -> None:
        """Mark some as read."""
        user = self.rng.choice(USERS)
        for shard in (self.memory, self.redis):
            listed, _ = await shard.list_notifications(user, "", 1000)
            # Of one moment they may differ in order, so all of it is marked or nothing.
            moments = sorted({each.fact.at for each in listed})
            if moments:
                until = moments[self.cycle % len(moments)]
                await shard.mark_read(
                    user, max((each.notification_id for each in listed if each.fact.at == until), key=_order)
                )

    async def compare_the_rest(self) -> None:
        """What few operations change is the same."""
        seen = []
        for shard in (self.memory, self.redis):
            ids = [await shard.component_ids(run.run) for run in self.runs.values()]
            cycles = range(max(0, self.cycle - 8), self.cycle + 1)
            letters = [await self._dead_letters(shard, user) for user in USERS]
            lines = [await shard.lines(flow, cycle, "", 1000) for flow in FLOWS for cycle in cycles]
            lines += [await shard.run_lines(run.run, "", 1000) for run in self.runs.values() if run.run.ad_hoc]
            listed = [await self._listed(shard, user, kind) for user in USERS for kind in ("task", "batch")]
            seen.append((ids, letters, [replace(line, log_id="") for each in lines for line in each], listed))
        assert seen[0] == seen[1]
        limits = [f"{kind}:{user}" for user in USERS for kind in ("user", "adhoc")]
        limits += [f"flow:{flow}" for flow in FLOWS] + [f"type:{node_type}" for node_type in TYPES]
        assert await self.memory.held(limits) == await self.redis.held(limits)
        assert await self.memory.queues() == await self.redis.queues()
        assert await self.memory.running(10_000) == await self.redis.running(10_000)
        assert await self.memory.totals() == await self.redis.totals()
        await self.compare_notices()

    async def _listed(self, shard: Whole, user: str, kind: str) -> list[tuple[int, str]]:
        """List in pages of 1 to 3."""
        listed: list[tuple[int, str]] = []
        size = self.cycle % 3 + 1
        while page := await shard.runs_of(user, kind, listed[-1] if listed else None, size):
            listed += page
        return listed


def _order_of(event: Event) -> tuple[str, ...]:
    """Where an event stands among all: those of one node task, or of one component, stay in their own order."""
    if isinstance(event, SubFlowEvent):
        return (event.run, "", event.task_id)
    return (event.run, event.component)


def _order(event_id: str) -> tuple[int, ...]:
    return tuple(map(int, event_id.split("-")))


def _check_events(task: NodeTask, events: Sequence[TaskEvent], *, mapped: bool) -> None:
    """Each event follows from the one before, only the last is final, and it leaves the task as it is on record, but
    for the offers of one that is mapped."""
    statuses = [event.status for event in events]
    for before, after in itertools.pairwise(statuses):
        assert after is before or after in TRANSITIONS[before], statuses
    assert not any(status.terminal for status in statuses[:-1]), statuses
    assert (statuses[-1], events[-1].attempt) == (task.status, task.attempt)
    assert [_order(event.event_id) for event in events] == sorted(_order(event.event_id) for event in events)
    left = events[-1].leaves(task)
    if mapped:
        left = replace(left, retry_at=task.retry_at)
    if left.error and task.error and not task.status.terminal:
        left = replace(left, error=replace(left.error, traceback=task.error.traceback))
    assert left == replace(task, lease_deadline=left.lease_deadline), "the newest event leaves what is on record"


def _spender(task_id: str, user_id: str) -> str:
    """Whose budget the further attempts of a node task are on."""
    return TaskName.parse(task_id).run.flow_id or f"user {user_id}"


def _is_of(task: Any, component: Any) -> bool:
    return bool(task and component and str(TaskName.parse(task["task_id"]).run) == str(component.run))


def _held(assignment: Assignment) -> Held:
    return Held(assignment.task_id, assignment.attempt, assignment.nonce)


def _public(assignment: Assignment) -> tuple[Any, ...]:
    return tuple(getattr(assignment, name) for name in Assignment.__slots__ if name != "nonce")


def _record(task: Any) -> Any:
    """A node task but for what differs: nonces, and the counts of signals that a single edge needs not."""
    if task is None:
        return None
    seen = {name: value for name, value in vars(task).items() if name not in {"nonce", "waiting", "live"}}
    return seen | {"updated_at": task.updated_at, "held": bool(task.nonce)}
