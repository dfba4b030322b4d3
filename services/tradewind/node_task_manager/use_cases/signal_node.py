"""Signals to node tasks that wait."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.waiting import MAX_KEPT, MAX_KEPT_OF_RUN, Signal, Wait
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.shard import of_user
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.built_in.forms import read_answer
from tradewind.server.faults import Exhausted, FailedPrecondition, Fault, InvalidInput, Unavailable, Violation

_TRIES = 10
_NO_ATTEMPT = 2**31 - 1
"""A number that no attempt has: with it, the store only says what the same request did before."""


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """A signal as its sender gives it; without a name, it is the one that the node task waits for."""

    signal: str
    payload: str
    by: str
    request_id: str = ""
    only_if_waiting: bool = False


class SignalNode:
    """Ends the wait of a node task, or lets the store keep the signal for one that does not wait yet."""

    def __init__(self, dispatchers: Mapping[int, Dispatcher], records: NodeTaskRecords) -> None:
        self._dispatchers = dispatchers
        self._records = records

    async def __call__(self, task_id: str, user_id: str, request: SignalRequest) -> tuple[TaskView, bool]:
        """Return the node task in its new state, and whether the signal is kept for later.

        Raises NotFound, FailedPrecondition, InvalidInput with every fault of an answer, and Exhausted.
        """
        dispatcher = of_user(self._dispatchers, user_id)
        for _ in range(_TRIES):
            view = await self._records.node_task(task_id, user_id)
            signal = Signal(
                task_id, view.task.component_id, request.signal, request.payload, request.by, request.request_id
            )
            refusal: Fault | None = None
            try:
                signal = _matched(signal, view, request)
            except Fault as fault:
                if not request.request_id:
                    raise
                # The same request may already have succeeded.
                signal, refusal = replace(signal, attempt=_NO_ATTEMPT), fault
            effects = await dispatcher.shard.tasks.signal(signal)
            dispatcher.apply(effects)
            (result,) = effects.results
            if result in ("resumed", "kept"):
                dispatcher.request_claim()
                return await self._records.node_task(task_id, user_id), result == "kept"
            if refusal is not None:
                raise refusal
            if result != "changed":
                raise _refused(result, task_id, await self._records.node_task(task_id, user_id))
        raise Unavailable("INTERNAL", f"{task_id} kept changing while the signal was delivered; send the signal again")


def _matched(signal: Signal, view: TaskView, request: SignalRequest) -> Signal:
    """Return the signal with the wait that it ends, if any, and how. Raises Fault when it does not fit."""
    task, wait = view.task, view.task.wait
    if task.status.terminal:
        raise _refused("ended", task.task_id, view)
    if view.is_mapped:
        raise _not_awaited(view, f"runs once for each item of a list: signal an item, such as {task.task_id}:0")
    if task.status is not NodeTaskStatus.SUSPENDED or wait is None:
        if request.only_if_waiting or view.node.wait is not None:
            raise _not_awaited(view, "is not waiting")
        if not request.signal:
            raise InvalidInput([Violation("signal", "is required while the node task is not waiting")])
        return signal
    if wait.flow_id:
        raise _not_awaited(view, f'waits for a cycle of flow "{wait.flow_id}", not for a signal')
    if not wait.signal:
        raise _not_awaited(view, "waits for a time, not for a signal")
    if request.signal not in ("", wait.signal):
        raise _not_awaited(view, f'waits for signal "{wait.signal}", not "{request.signal}"')
    approved, payload = True, request.payload
    if wait.form:
        approved, payload = _answer(wait, request)
    handle = wait.handle(approved=approved)
    return replace(signal, signal=wait.signal, payload=payload, attempt=task.attempt, handle=handle)


def _answer(wait: Wait, request: SignalRequest) -> tuple[bool, str]:
    """Return whether an answer approves, and the answer to emit. Raises InvalidInput with every fault."""
    form: dict[str, Any] = msgspec.json.decode(wait.form)
    answer, faults = read_answer(form, msgspec.json.decode(request.payload))
    if faults:
        raise InvalidInput(
            [Violation(".".join(("payload_json", *map(str, keys))), message) for keys, message in faults]
        )
    return answer.approved, answer.to_json(by=request.by)


def _not_awaited(view: TaskView, reason: str) -> FailedPrecondition:
    task = view.task
    message = f"{task.task_id} {reason}; it is {task.status}"
    return FailedPrecondition("SIGNAL_NOT_AWAITED", message, f"node_tasks/{task.task_id}")


def _refused(result: str, task_id: str, view: TaskView) -> Fault:
    subject = f"node_tasks/{task_id}"
    match result:
        case "full":
            bounds = f"{MAX_KEPT} for a node task and {MAX_KEPT_OF_RUN} for a run"
            return Exhausted("QUEUE_FULL", f"too many signals are stored for {task_id}; the limits are {bounds}", 5.0)
        case "unknown":
            return FailedPrecondition("WRONG_STATUS", f"{task_id} has not begun", subject)
        case "stopping":
            return FailedPrecondition("WRONG_STATUS", f"{task_id} is being stopped", subject)
    resumed = view.task.resumed
    by = f'; the signal "{resumed.signal}" from {resumed.by} ended its wait' if resumed and resumed.signal else ""
    return FailedPrecondition("WRONG_STATUS", f"{task_id} is {view.task.status}{by}", subject)
