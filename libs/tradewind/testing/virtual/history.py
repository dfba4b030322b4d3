"""What happened in a simulation, in order."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as events_pb2
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as due_pb2
from tradewind.standalone.in_memory import CycleChange

Line = dict[str, Any]

_SERVICES = "/tradewind.api."
_WORK = f"{_SERVICES}node_task_manager.v1.NodeTaskManagerService/Work"
_EVENTS = f"{_SERVICES}node_task_manager.v1.NodeTaskManagerService/ReceiveEvents"
_DUE = f"{_SERVICES}trigger.v1.TriggerService/ReceiveDue"


class History:
    """Lines in the order in which things happened, each with `at_ms` (epoch) and `what`.

    `what` is `due` (a firing reached the scheduler), `cycle_began`, `cycle_ended` (`status`), `component_ended` (its
    counts); and, as the worker received or reported it, also while it was cut off, `attempt_began`,
    `attempt_completed` (`outputs`), `attempt_suspended` (the `signal` that it waits for, "" for a time),
    `attempt_failed` (`code`, `message`), `attempt_given_back`, `stop_asked` and `lease_lost`.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._entries: list[tuple[int, str, Any]] = []

    @property
    def lines(self) -> list[Line]:
        """All lines so far."""
        return [{"at_ms": at_ms, **line} for at_ms, kind, what in self._entries for line in _READERS[kind](what)]

    def to_json(self) -> bytes:
        """Return each line as canonical JSON: equal histories are equal bytes."""
        texts = [json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in self.lines]
        return "".join(texts).encode()

    def tap(self, method: str, from_server: bool, message: bytes) -> None:
        """Note a message on the wire; relevant messages are decoded when somebody asks."""
        kind = _KINDS.get((method, from_server))
        if kind is not None:
            self._entries.append((self._now_ms(), kind, message))

    def record(self, news: CycleChange) -> None:
        """Note what happened to a cycle."""
        self._entries.append((self._now_ms(), "cycle", news))


def _cycle(news: CycleChange) -> Iterator[Line]:
    name = {"flow_id": news.flow_id, "cycle": news.cycle, "run": news.run}
    if news.status == "running":
        yield {"what": "cycle_began", **name, "planned_ms": news.planned_ms}
    else:
        yield {"what": "cycle_ended", **name, "status": news.status, "reason": news.reason}


def _given(raw: bytes) -> Iterator[Line]:
    message = work_pb2.WorkResponse.FromString(raw)
    for assignment in message.assignments:
        yield _attempt("attempt_began", assignment.token)
    for termination in message.terminations:
        yield {**_attempt("stop_asked", termination.token), "reason": termination.stop.reason}
    for loss in message.losses:
        yield {**_attempt("lease_lost", loss.token), "reason": loss.reason}


def _reported(raw: bytes) -> Iterator[Line]:
    message = work_pb2.WorkRequest.FromString(raw)
    for completion in message.completions:
        if completion.HasField("wait"):
            yield {**_attempt("attempt_suspended", completion.token), "signal": completion.wait.signal}
            continue
        outputs = {output.handle: json.loads(output.value_json) for output in completion.outputs}
        yield {**_attempt("attempt_completed", completion.token), "outputs": outputs}
    for failure in message.failures:
        error = {"code": failure.error.code, "message": failure.error.message, "terminated": failure.terminated}
        yield {**_attempt("attempt_failed", failure.token), **error}
    for token in message.give_back_tokens:
        yield _attempt("attempt_given_back", token)


def _attempt(what: str, token: str) -> Line:
    _, task_id, attempt, _ = token.split("~")
    return {"what": what, "node_task_id": task_id, "attempt": int(attempt)}


def _events(raw: bytes) -> Iterator[Line]:
    for event in events_pb2.ReceiveEventsResponse.FromString(raw).events:
        if event.HasField("sub_flow"):
            sub_flow = event.sub_flow
            yield {
                "what": "cycle_abandoned" if sub_flow.HasField("abandoned") else "cycle_wanted",
                "node_task_id": sub_flow.node_task_id,
            }
            continue
        component = event.component_finished.component
        counts = component.counts
        yield {
            "what": "component_ended",
            "flow_id": component.flow_id,
            "cycle": component.cycle,
            "run": component.run,
            "component_id": component.component_id,
            "completed": counts.completed,
            "failed": counts.failed,
            "terminated": counts.terminated,
            "skipped": counts.skipped,
        }


def _due(raw: bytes) -> Iterator[Line]:
    for due in due_pb2.ReceiveDueResponse.FromString(raw).due:
        planned_ms = due.planned_time.ToMilliseconds()
        yield {"what": "due", "flow_id": due.trigger.partition_key, "planned_ms": planned_ms}


_KINDS = {(_WORK, True): "given", (_WORK, False): "reported", (_EVENTS, True): "events", (_DUE, True): "due"}
_READERS: dict[str, Callable[[Any], Iterator[Line]]] = {
    "cycle": _cycle,
    "given": _given,
    "reported": _reported,
    "events": _events,
    "due": _due,
}
