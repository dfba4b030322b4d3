"""A random actor that makes the same calls on memory and Redis: users, schedulers and workers in one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from tests.stores.node_task_manager.both import FLOWS, USERS, WORKERS, position
from tests.stores.node_task_manager.fan_outs import Offered, join, random_split
from tests.stores.node_task_manager.random_plans import BATCH, TASK_PLANS, TYPES
from tests.stores.node_task_manager.random_workers import Workers
from tests.stores.node_task_manager.reruns import random_rerun
from tests.stores.node_task_manager.waits import random_report, random_signal, suspended
from tradewind.node_task_manager.domain.batch import Deletion
from tradewind.node_task_manager.domain.component import Release, RunSubmission, SubmitOutcome
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.task_event import WatchOutcome
from tradewind.node_task_manager.ports.node_tasks import Cleaned
from tradewind.node_task_manager.ports.work import Termination, Vacancy
from tradewind.server.rates import Rate

VERBS = {
    "submit": 4.0,
    "claim": 5,
    "end": 8,
    "end_eagerly": 2,
    "lapse": 2,
    "renew": 2,
    "reconnect": 1,
    "give_back": 1,
    "stop": 1,
}
SETTLE_MS = 5_000
"""How long ended runs stay in any case: short, so that some are removed."""
CLEAN_KEYS = 15
"""How many keys a step of cleaning may touch: few, so that there are many steps."""
VERBS |= {"pass_on": 1, "begin_process": 0.5, "terminate": 1, "note": 1, "purge": 0.3, "configure": 0.5}
VERBS |= {"postpone": 1, "hasten": 1, "fan_out": 3}
VERBS |= {"acknowledge": 1.5, "clean": 1.5, "signal": 3, "report_sub_flows": 3}
VERBS["read_notifications"] = 0.3
VERBS |= {"release": 1, "rerun": 2, "watch": 2, "delete_batch": 2}


@dataclass
class World(Workers):
    """All actors, and what they know."""

    config: SystemConfig = field(default_factory=SystemConfig)

    async def act(self) -> str:
        """Do something, and return what."""
        verb = self.rng.choices(list(VERBS), list(VERBS.values()))[0]
        await getattr(self, verb)()
        return verb

    async def submit(self) -> None:
        runs = [
            self._resubmission() if self.runs and self.rng.random() < 0.15 else self._run()
            for _ in range(self.rng.randint(1, 3))
        ]
        if self.rng.random() < 0.1:
            await self._stop(self.rng.choice(runs))
        for digest in (run.components[0][1] for run in runs if run.run.batch_id):
            for shard in (self.memory, self.redis):
                await shard.save(self.plans[digest])
        of_memory, of_redis = await self.call_both("submit", (runs, self._maybe_vacancies()))
        assert of_memory.results == of_redis.results
        for run, result in zip(runs, of_memory.results, strict=True):
            if result.outcome is SubmitOutcome.ACCEPTED:
                self.runs[str(run.run)] = run

    def _run(self) -> RunSubmission:
        self.cycle += 1
        if self.rng.random() < 0.2:
            return self._ad_hoc()
        of_flows = [each for each in self.plans if each not in TASK_PLANS and not each.startswith(BATCH.digest)]
        chosen = self.rng.sample(of_flows, self.rng.choice((1, 1, 1, 2, 3)))
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
            # Over before the run is looked at, or long after the test.
            keep_for_ms=self.rng.choice((0, 0, SETTLE_MS // 2, 10**8)),
        )

    def _ad_hoc(self) -> RunSubmission:
        """Draw a task or a batch."""
        task = self.rng.random() < 0.5
        own = replace(BATCH, digest=f"batch {self.cycle}")
        self.plans[own.digest] = own
        return RunSubmission(
            RunName.of_task(f"t{self.cycle}") if task else RunName.of_batch(f"b{self.cycle}"),
            f"r{self.cycle}",
            USERS[0] if self.cut else self.rng.choice(USERS),
            (("0", self.rng.choice(list(TASK_PLANS)) if task else own.digest),),
            partition=-1,
            node_type="t1",
        )

    def _resubmission(self) -> RunSubmission:
        run = self.rng.choice(list(self.runs.values()))
        if self.rng.random() < 0.7:
            return run
        # Another run of that name; one that begins later ends the first.
        return structs.replace(run, run_id="other", begun_ms=self.rng.choice((run.begun_ms, self.clock())))

    async def rerun(self) -> None:
        """Rerun a run that has ended, keeping some of its results."""
        rerun = await random_rerun(self.rng, self.memory, self.runs, self.plans, self.clock())
        if rerun is not None:
            of_memory, of_redis = await self.call_both("submit", ([rerun], self._maybe_vacancies()))
            assert of_memory.results == of_redis.results
            if of_memory.results[0].outcome is SubmitOutcome.ACCEPTED:
                self.runs[str(rerun.run)] = rerun

    async def fan_out(self) -> None:
        """Carry out offers of mapped nodes, sometimes one that has been carried out before."""
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
        vacancies = self._maybe_vacancies()
        await self.call_both("fan_out", ([of_memory], vacancies), ([of_redis], vacancies))

    async def hasten(self) -> None:
        """Make waiting node tasks ready, some of them due for a next attempt, and try some that do not wait at all."""
        waiting = [task_id for task_id in self.waits if self.rng.random() < 0.7]
        chosen = {*waiting, *(pair.memory.task_id for pair in self.pairs[-2:]), "f:99999:0:unknown"}
        names = sorted(chosen)
        of_memory, _ = await self.call_both("hasten", (names,))
        for task_id, refusal in zip(names, of_memory.results, strict=True):
            if not refusal:
                self.waits.pop(task_id, None)

    async def stop(self) -> None:
        if self.runs:
            await self._stop(self.rng.choice(list(self.runs.values())))

    async def _stop(self, run: RunSubmission) -> None:
        component_id = self.rng.choice(("", self.rng.choice(run.components)[0]))
        run_id = run.run_id if self.rng.random() < 0.9 else "other"
        await self.call_both("stop", (run.run, run_id, component_id, "enough", "ann", 10**9))

    async def release(self) -> None:
        """Release or skip components, sometimes components that are not withheld."""
        holding = [run for run in self.runs.values() if run.withheld]
        if holding:
            run = self.rng.choice(holding)
            run_id = run.run_id if self.rng.random() < 0.9 else "other"
            chosen = self.rng.sample(run.components, self.rng.randint(1, len(run.components)))
            await self._release(run, run_id, [component_id for component_id, _ in chosen])

    async def _release(self, run: RunSubmission, run_id: str, ids: Sequence[str]) -> None:
        releases = [
            Release(each, self.rng.choice(("", '{"outcome":1}')), self.rng.choice(("", "", "no"))) for each in ids
        ]
        await self.call_both("release", (run.run, run_id, releases))

    async def terminate(self) -> None:
        if self.runs:
            run = self.rng.choice(list(self.runs.values()))
            component_id, digest = self.rng.choice(run.components)
            nodes = self.plans[digest].nodes
            place = self.rng.randrange(len(nodes))
            task_id = run.run.task_id(nodes[place].node_id)
            if nodes[place].fan_out is not None and self.rng.random() < 0.5:
                task_id += f":{self.rng.randint(0, 3)}"
            await self.call_both("terminate", (task_id, component_id, place, "no", "bob"))

    async def signal(self) -> None:
        """Signal some node tasks, most of which wait, sometimes twice at once."""
        waiting = await suspended(self.memory, await self._ids())
        for task in self.rng.sample(waiting, min(2, len(waiting))):
            sent = random_signal(self.rng, task.component_id, task.task_id, task)
            for _ in range(self.rng.choice((1, 1, 2))):
                await self.call_both("signal", (sent,))
        if self.runs and self.rng.random() < 0.5:
            run = self.rng.choice(list(self.runs.values()))
            component_id, digest = self.rng.choice(run.components)
            task_id = run.run.task_id(self.rng.choice(self.plans[digest].nodes).node_id)
            (known,) = await self.memory.tasks([task_id])
            await self.call_both("signal", (random_signal(self.rng, component_id, task_id, known),))

    async def report_sub_flows(self) -> None:
        """Report on cycles that some node tasks wait for, sometimes twice."""
        waiting = await suspended(self.memory, await self._ids())
        of_flows = [task for task in waiting if task.wait is not None and task.wait.flow_id]
        for task in self.rng.sample(of_flows, min(2, len(of_flows))):
            report = random_report(self.rng, self._run_id_of(task), task)
            await self.call_both("report_sub_flows", ([report] * self.rng.choice((1, 1, 2)),))

    def _run_id_of(self, task: NodeTask) -> str:
        return self.runs[str(TaskName.parse(task.task_id).run)].run_id

    async def watch(self) -> None:
        """Watch some node task of a flow, perhaps one that is already watched, or an item that has not begun."""
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

    async def delete_batch(self) -> None:
        """Try to delete some batch, preferably one that has ended."""
        batches = [run for run in self.runs.values() if run.run.batch_id]
        if not batches:
            return
        states = await self.memory.components([(run.run, "0") for run in batches])
        ended = [run for run, state in zip(batches, states, strict=True) if state and state.finished_at]
        run, user = self.rng.choice(ended or batches), self.rng.choice(USERS)
        deletions = [await shard.delete_batch(run.run, user) for shard in (self.memory, self.redis)]
        assert deletions[0] is deletions[1], run.run
        assert (deletions[0] is Deletion.UNKNOWN) == (user != run.user_id), run.run
        if deletions[0] is Deletion.DELETED:
            del self.runs[str(run.run)]
            self.deleted.add(str(run.run))

    async def purge(self) -> None:
        # What is due wakes in both stores; the submissions below, which only Redis gets, wake nothing more.
        await self.call_both("claim", ((),))
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
                # Runs that began before are refused from the first call on, though parts of them may still be there.
                submitted = await self.redis.submit([self.rng.choice(late)])
                assert submitted.results[0].outcome in (SubmitOutcome.FLOW_PURGED, SubmitOutcome.DUPLICATE)
        assert of_memory.removed == removed
        assert sorted(t.task_id for t in of_memory.effects.terminations) == sorted(t.task_id for t in terminations)
        self.runs = {name: run for name, run in self.runs.items() if run.run.flow_id != flow}
        # A new flow of this name has a budget of its own.
        self.granted = [(at, by) for at, by in self.granted if by != flow]
        self.clock.advance(1)

    async def configure(self) -> None:
        """Set other limits, often none at all."""
        version = self.config.version + 1
        self.config = self._limits(version) if self.rng.random() < 0.6 else SystemConfig(version=version)
        await self.redis.save_config(self.config)
        for shard in (self.memory, self.redis):
            shard.configure(self.config)
        await self.call_both("reopen", ())

    def _limits(self, version: int) -> SystemConfig:
        return SystemConfig(
            max_running=self.rng.choice((0, 0, 3, 8)),
            max_running_per_user=self.rng.choice((0, 0, 1, 2, 5)),
            max_running_per_flow=self.rng.choice((0, 0, 2)),
            max_concurrent_tasks=self.rng.choice((0, 1, 2)),
            max_running_per_node_type={} if self.rng.random() < 0.5 else {TYPES[0]: self.rng.randint(1, 3)},
            rates={}
            if self.rng.random() < 0.7
            else {TYPES[1]: Rate(self.rng.randint(1, 4), self.rng.choice((1_000, 60_000)))},
            user_weights={} if self.rng.random() < 0.5 else {"ann": self.rng.choice((3.0, 0.3))},
            version=version,
        )

    async def acknowledge(self) -> None:
        """Acknowledge some events of a partition as a scheduler would, up to one instant.

        Events of the same instant are in each store's own order.
        """
        partition, count = self.rng.randint(0, 1), self.rng.randint(1, 5)
        known = [await shard.read({partition: "0"}, 10_000) for shard in (self.memory, self.redis)]
        if known[0]:
            until = known[0][:count][-1].at
            for shard, events in zip((self.memory, self.redis), known, strict=True):
                await shard.acknowledge({partition: [each for each in events if each.at <= until][-1].event_id})

    async def clean(self) -> None:
        """Clean until nothing is left to do; open runs are not touched, and both stores remove as much of the rest."""
        self.clock.advance(self.rng.choice((0, 0, SETTLE_MS)))
        recall = self.rng.choice((None, None, 0))
        of_memory = await self.memory.clean("c1", 0, recall)
        steps = await self.sweep(recall)
        assert all((step.leads, step.waits) == (of_memory.leads, of_memory.waits) for step in steps)
        removed = sum(step.runs for step in steps), sum(step.node_tasks for step in steps)
        assert removed == (of_memory.runs, of_memory.node_tasks)
        self.compare_events("clean", of_memory.events, [event for step in steps for event in step.events])
        kept = [name for name, run in self.runs.items() if await self.memory.component_ids(run.run)]
        for name in self.runs.keys() - set(kept):
            assert not await self.redis.component_ids(self.runs[name].run), name
        self.runs = {name: self.runs[name] for name in kept}

    async def sweep(self, recall: int | None = None) -> list[Cleaned]:
        """Clean Redis until nothing is left to do."""
        steps = [await self.redis.clean("c1", 0, recall)]
        while steps[-1].more:
            steps.append(await self.redis.clean("c1", steps[-1].place, steps[-1].recall))
        # A step ends with the run, or the dead letters of a user, that it is looking at.
        assert all(step.keys <= CLEAN_KEYS + 40 for step in steps), steps
        return steps

    async def end_all(self) -> None:
        """Let everything end: finish work, and let leases and waits run out."""
        for _ in range(100):
            before = len(self.pairs)
            for node_type in TYPES:
                await self.call_both(
                    "claim", ([Vacancy(each, self.sessions.get(each, 0), 50, (node_type,)) for each in WORKERS],)
                )
            for offered in list(self.offered.values()):
                await self._carry_out(offered)
            self.offered = {}
            for run in [run for run in self.runs.values() if run.withheld]:
                await self._release(run, run.run_id, run.withheld)
            outcomes = [self._outcome(pair) for pair in self.pairs[before:]]
            await self.call_both("complete", ([m for m, _ in outcomes], ()), ([r for _, r in outcomes], ()))
            for task in await suspended(self.memory, await self._ids()):
                if task.wait is not None and task.wait.flow_id:
                    report = random_report(self.rng, self._run_id_of(task), task, ends=True)
                    await self.call_both("report_sub_flows", ([report],))
                    continue
                await self.call_both("signal", (random_signal(self.rng, task.component_id, task.task_id, task),))
            self.clock.advance(100_000)
            await self.call_both("reap", ())
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
        await self.compare_rarely_changed()
        self.clock.advance(24 * 3600 * 1000 + 1)
        await self.call_both("reap", ())

    async def read_notifications(self) -> None:
        """Mark some notifications as read."""
        user = self.rng.choice(USERS)
        for shard in (self.memory, self.redis):
            listed, _ = await shard.list_notifications(user, "", 1000)
            # Notifications of one moment may differ in order, so all of a moment are marked, or none.
            moments = sorted({each.fact.at for each in listed})
            if moments:
                until = moments[self.cycle % len(moments)]
                await shard.mark_read(
                    user, max((each.notification_id for each in listed if each.fact.at == until), key=position)
                )
