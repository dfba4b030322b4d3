"""Signals to node tasks that wait."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.waiting import MOST_KEPT, MOST_KEPT_OF_RUN, Signal, Wait
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.look import Look, Seen
from tradewind.server.built_in.forms import read_answer
from tradewind.server.faults import Exhausted, FailedPrecondition, Fault, InvalidInput, Unavailable, Violation
from tradewind.server.partitions import shard_of

_TRIES = 10
_NEVER = 2**31 - 1
"""A number that no attempt has: with it, the store only says what the same request did before."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A signal as its sender gives it; without a name, it is the one that the node task waits for."""

    signal: str
    payload: str
    by: str
    request_id: str = ""
    only_if_waiting: bool = False


class SignalNode:
    """Ends the wait of a node task, or lets the store keep the signal for one that does not wait yet."""

    def __init__(self, dispatchers: Mapping[int, Dispatcher], look: Look) -> None:
        self._dispatchers = dispatchers
        self._look = look

    async def __call__(self, task_id: str, user_id: str, asked: Asked) -> tuple[Seen, bool]:
        """Return the node task in its new state, and whether the signal is kept for later.

        Raises NotFound, FailedPrecondition, InvalidInput with every fault of an answer, and Exhausted.
        """
        dispatcher = self._dispatchers[shard_of(user_id, len(self._dispatchers))]
        for _ in range(_TRIES):
            seen = await self._look.node_task(task_id, user_id)
            signal = Signal(task_id, seen.task.component_id, asked.signal, asked.payload, asked.by, asked.request_id)
            refusal: Fault | None = None
            try:
                signal = _fitting(signal, seen, asked)
            except Fault as fault:
                if not asked.request_id:
                    raise
                # The same request may already have succeeded.
                signal, refusal = replace(signal, attempt=_NEVER), fault
            effects = await dispatcher.shard.tasks.signal(signal)
            dispatcher.apply(effects)
            (became,) = effects.results
            if became in ("resumed", "kept"):
                dispatcher.request_claim()
                return await self._look.node_task(task_id, user_id), became == "kept"
            if refusal is not None:
                raise refusal
            if became != "changed":
                raise _refused(became, task_id, await self._look.node_task(task_id, user_id))
        raise Unavailable("INTERNAL", f"{task_id} kept changing while the signal was delivered; send the signal again")


def _fitting(signal: Signal, seen: Seen, asked: Asked) -> Signal:
    """Return the signal with the wait that it ends, if any, and how. Raises Fault when it does not fit."""
    task, wait = seen.task, seen.task.wait
    if task.status.terminal:
        raise _refused("ended", task.task_id, seen)
    if task.status is not NodeTaskStatus.SUSPENDED or wait is None:
        if asked.only_if_waiting or seen.plan.nodes[task.index].wait is not None:
            raise _not_awaited(seen, "is not waiting")
        if not asked.signal:
            raise InvalidInput([Violation("signal", "is required while the node task is not waiting")])
        return signal
    if wait.flow_id:
        raise _not_awaited(seen, f'waits for a cycle of flow "{wait.flow_id}", not for a signal')
    if not wait.signal:
        raise _not_awaited(seen, "waits for a time, not for a signal")
    if asked.signal not in ("", wait.signal):
        raise _not_awaited(seen, f'waits for signal "{wait.signal}", not "{asked.signal}"')
    approved, payload = True, asked.payload
    if wait.form:
        approved, payload = _answer(wait, asked)
    handle = wait.handle(approved=approved)
    return replace(signal, signal=wait.signal, payload=payload, attempt=task.attempt, handle=handle)


def _answer(wait: Wait, asked: Asked) -> tuple[bool, str]:
    """Return whether an answer approves, and the answer to emit. Raises InvalidInput with every fault."""
    form: dict[str, Any] = msgspec.json.decode(wait.form)
    answer, faults = read_answer(form, msgspec.json.decode(asked.payload))
    if faults:
        raise InvalidInput(
            [Violation(".".join(("payload_json", *map(str, keys))), message) for keys, message in faults]
        )
    return answer.approved, answer.to_json(by=asked.by)


def _not_awaited(seen: Seen, why: str) -> FailedPrecondition:
    task = seen.task
    message = f"{task.task_id} {why}; it is {task.status}"
    return FailedPrecondition("SIGNAL_NOT_AWAITED", message, f"node_tasks/{task.task_id}")


def _refused(became: str, task_id: str, seen: Seen) -> Fault:
    subject = f"node_tasks/{task_id}"
    match became:
        case "full":
            bounds = f"{MOST_KEPT} for a node task and {MOST_KEPT_OF_RUN} for a run"
            return Exhausted("QUEUE_FULL", f"too many signals are stored for {task_id}; the limits are {bounds}", 5.0)
        case "unknown":
            return FailedPrecondition("WRONG_STATUS", f"{task_id} has not begun", subject)
        case "stopping":
            return FailedPrecondition("WRONG_STATUS", f"{task_id} is being stopped", subject)
    resumed = seen.task.resumed
    by = f'; signal "{resumed.signal}" of {resumed.by} ended its wait' if resumed and resumed.signal else ""
    return FailedPrecondition("WRONG_STATUS", f"{task_id} is {seen.task.status}{by}", subject)
