"""Random workers: they take node tasks, end them, fall silent and come back."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from tests.stores.node_task_manager.both import WORKERS, BothStores, Pair
from tests.stores.node_task_manager.eager import Eager
from tests.stores.node_task_manager.random_plans import TYPES
from tests.stores.node_task_manager.waits import random_wait
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.retry import RetryRequest
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.ports.work import Assignment, Held, Outcome, OutcomeKind, Postponed, Vacancy

ENDS = (OutcomeKind.COMPLETED, OutcomeKind.FAILED, OutcomeKind.TERMINATED, OutcomeKind.SUSPENDED)
LARGE = '"' + "v" * 5000 + '"'


@dataclass
class Workers(BothStores):
    """Workers of both stores, and their sessions."""

    sessions: dict[str, int] = field(default_factory=dict)
    forgotten: int = 0
    """The number of attempts of which the store has lost every trace."""
    eager_attempts: dict[str, Assignment] = field(default_factory=dict)
    """Attempts that workers have begun by themselves, by nonce."""

    def __post_init__(self) -> None:
        self.eager = Eager(self.rng, self.plans)

    def vacancies(self) -> list[Vacancy]:
        """Draw workers with room, some with a session, some of those stale."""
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

    def _maybe_vacancies(self) -> list[Vacancy]:
        return [] if self.cut else self.vacancies()

    async def claim(self) -> None:
        await self.call_both("claim", (self.vacancies(),))

    async def end(self) -> None:
        outcomes: list[tuple[Outcome, Outcome]] = []
        for _ in range(self.rng.randint(0, 5) if self.pairs else 0):
            # Mostly new attempts, some that ended or were lost long ago, sometimes one twice.
            recent = self.pairs[-8:] if self.rng.random() < 0.8 else self.pairs
            outcomes.append(self._outcome(self.rng.choice(recent)))
            if self.rng.random() < 0.1:
                outcomes.append(outcomes[-1])
            elif not self.cut and self.rng.random() < 0.2:
                outcomes += self._eager_successors(outcomes[-1][0])
        await self._complete(outcomes)

    async def end_eagerly(self) -> None:
        """End some running attempts, and begin by themselves what follows from them."""
        outcomes: list[tuple[Outcome, Outcome]] = []
        for pair in self.rng.sample(self.pairs, len(self.pairs))[: 0 if self.cut else 20]:
            (task,) = await self.memory.tasks([pair.memory.task_id])
            if task is not None and task.status is NodeTaskStatus.RUNNING and task.nonce == pair.memory.nonce:
                of_memory, of_redis = (
                    Outcome(a.task_id, a.attempt, a.nonce, OutcomeKind.COMPLETED, (("x", "1"), ("y", "2")))
                    for a in (pair.memory, pair.redis)
                )
                reported = [(of_memory, of_redis), *self._eager_successors(of_memory)]
                # Sometimes the worker reports it all again over another stream, once its last attempt has ended.
                again = [(_ended(m), _ended(r)) for m, r in reported] if self.rng.random() < 0.5 else ()
                outcomes += [*reported, *again]
        await self._complete(outcomes)

    async def _complete(self, outcomes: Sequence[tuple[Outcome, Outcome]]) -> None:
        args = [[outcome[at] for outcome in outcomes] for at in (0, 1)]
        # A forgotten attempt replaces one that waits for its next attempt, and may go on sooner.
        forgotten = {outcome.nonce: outcome.task_id for outcome in args[0] if outcome.nonce.startswith("forgotten")}
        waits = {nonce: self.waits.pop(task_id, 0) for nonce, task_id in forgotten.items()}
        vacancies = self._maybe_vacancies()
        of_memory, _ = await self.call_both("complete", (args[0], vacancies), (args[1], vacancies))
        for outcome, refused in zip(args[0], of_memory.results, strict=True):
            if refused and waits.get(outcome.nonce):
                self.waits[outcome.task_id] = waits[outcome.nonce]
            given = self.eager_attempts.get(outcome.nonce)
            if given is not None and not refused and not any(pair.memory is given for pair in self.pairs):
                self.pairs.append(Pair(given, given))
                retry = self.plans[given.plan].nodes[given.index].retry
                if retry and retry.attempts > 1:
                    self.begun.append((self.clock(), RunName.of_node_task(given.task_id).flow_id))

    def _eager_successors(self, outcome: Outcome) -> list[tuple[Outcome, Outcome]]:
        """Return the nodes that their worker goes on with by itself, one after the other."""
        steps: list[tuple[Outcome, Outcome]] = []
        given = next((pair.memory for pair in self.pairs if pair.memory.nonce == outcome.nonce), None)
        while given is not None and (step := self.eager.after(given, tuple(at for at, _ in outcome.outputs))):
            given, outcome = step
            self.eager_attempts[given.nonce] = given
            steps.append((outcome, outcome))
        return steps

    def _outcome(self, pair: Pair) -> tuple[Outcome, Outcome]:
        node = self.plans[pair.memory.plan].nodes[pair.memory.index]
        # Nodes with a retry policy mostly fail, so that waits and budgets come into play; items do not.
        often = node.retry is None or node.fan_out is not None
        kind = self.rng.choices(ENDS, (8, 2, 1, 3) if often else (3, 8, 1, 2))[0]
        error = None
        if kind in (OutcomeKind.FAILED, OutcomeKind.TERMINATED):
            error = TaskError("NODE_ERROR", "broke", self.rng.choice(("IOError", "IOError", "ValueError")))
        retry_request = None
        if kind is OutcomeKind.FAILED and self.rng.random() < 0.3:
            retry_request = RetryRequest(self.rng.choice((None, 0, 3_000, 90_000)), none=self.rng.random() < 0.2)
        completed = kind is OutcomeKind.COMPLETED
        wait = random_wait(self.rng, self.clock()) if kind is OutcomeKind.SUSPENDED else None
        handles = [handle for handle in ("x", "y") if completed and self.rng.random() < 0.7]
        outputs = tuple((handle, self.rng.choice(("1", "null", LARGE))) for handle in handles)
        cache = self.rng.choice(("", "", "screening")) if completed else ""
        if self.rng.random() < 0.05:
            # The store lost its last second, and with it a newer attempt.
            self.forgotten += 1
            # Unless that belonged to an earlier run of this name.
            tag = self.rng.choice((pair.memory.run_id[:4], pair.memory.run_id[:4], "gone"))
            nonce = f"{tag}forgotten{self.forgotten}"
            given = structs.replace(pair.memory, attempt=pair.memory.attempt + 1, nonce=nonce)
            pair = Pair(given, given)
        of_memory, of_redis = (
            Outcome(a.task_id, a.attempt, a.nonce, kind, outputs, error, retry_request, cache, wait)
            for a in (pair.memory, pair.redis)
        )
        return of_memory, of_redis

    async def lapse(self) -> None:
        self.clock.advance(self.rng.choice((1, 500, 2_000, 11_000, 31_000, 70_000)))
        await self.call_both("reap", (self.rng.choice((0, 0, 1, 10_000, 30_000)),))

    def _some_held(self, worker: str) -> tuple[list[Held], list[Held]]:
        """Draw tokens of a worker, sometimes one of another worker's."""
        chance = {True: 0.5, False: 0.03}
        mine = [pair for pair in self.pairs if self.rng.random() < chance[pair.memory.worker_id == worker]]
        return [_held(pair.memory) for pair in mine], [_held(pair.redis) for pair in mine]

    async def renew(self) -> None:
        worker = self.rng.choice(WORKERS)
        of_memory, of_redis = self._some_held(worker)
        session = self.sessions.get(worker, 0)
        before = len(self.pairs)
        a, b = await self.call_both("renew", (worker, session, of_memory), (worker, session, of_redis))
        del self.pairs[before:]
        assert (a.session_current, a.lease_deadline) == (b.session_current, b.lease_deadline)
        index = {m.nonce: r.nonce for m, r in zip(of_memory, of_redis, strict=True)}
        assert [(index[nonce], why) for nonce, why in a.lost] == list(b.lost)

    async def reconnect(self) -> None:
        worker = self.rng.choice(WORKERS)
        of_memory, of_redis = self._some_held(worker)
        incarnation = self.rng.choice(("i1", "i2"))
        a, b = await self.call_both("open_session", (worker, incarnation, of_memory), (worker, incarnation, of_redis))
        index = {m.nonce: r.nonce for m, r in zip(of_memory, of_redis, strict=True)}
        assert (a.session, [index[nonce] for nonce in a.lost]) == (b.session, list(b.lost))
        self.sessions[worker] = a.session

    async def give_back(self) -> None:
        worker = self.rng.choice(WORKERS)
        session = self.sessions.get(worker, 0)
        if self.rng.random() < 0.5:
            await self.call_both("give_back", (worker, session, None))
        else:
            of_memory, of_redis = self._some_held(worker)
            await self.call_both("give_back", (worker, session, of_memory), (worker, session, of_redis))

    async def postpone(self) -> None:
        """Take back some attempts that their workers never got, sometimes one that ended long ago."""
        recent = self.pairs[-8:] if self.rng.random() < 0.8 else self.pairs
        chosen = self.rng.sample(recent, min(self.rng.randint(0, 3), len(recent)))
        wait = self.rng.choice((0, 1, 3_000, 40_000))
        of_memory, of_redis = (
            [Postponed(a.task_id, a.nonce, wait) for a in each]
            for each in ([pair.memory for pair in chosen], [pair.redis for pair in chosen])
        )
        await self.call_both("postpone", (of_memory,), (of_redis,))

    async def begin_process(self) -> None:
        await self.call_both("begin_process", (self.rng.choice(WORKERS), self.rng.choice(("i1", "i2"))))

    async def pass_on(self) -> None:
        if self.pairs:
            pair, to = self.rng.choice(self.pairs[-8:]), self.rng.choice(WORKERS)
            giver = pair.memory.worker_id if self.rng.random() < 0.9 else self.rng.choice(WORKERS)
            await self.call_both("pass_on", (giver, _held(pair.memory), to), (giver, _held(pair.redis), to))

    async def note(self) -> None:
        for pair in self.rng.sample(self.pairs, min(3, len(self.pairs))):
            at = self.rng.randint(0, 100)
            kept = []
            for shard, a in ((self.memory, pair.memory), (self.redis, pair.redis)):
                line = Line(a.task_id, a.attempt, a.nonce, "INFO", "node", f"at {at}", self.clock())
                kept.append(
                    await shard.record([Progress(a.task_id, a.nonce, at, "so far", f"step {at // 25}")], [line])
                )
            assert kept[0] == kept[1]


def _ended(outcome: Outcome) -> Outcome:
    begun = outcome.kind is OutcomeKind.BEGUN
    return structs.replace(outcome, kind=OutcomeKind.COMPLETED, outputs=(("x", "1"),)) if begun else outcome


def _held(assignment: Assignment) -> Held:
    return Held(assignment.task_id, assignment.attempt, assignment.nonce)
