"""Waits: what a suspended node task waits for, what ends its wait, and signals."""

from dataclasses import dataclass

from tradewind.server.built_in.approvals import APPROVED, REJECTED

MAX_KEPT, MAX_KEPT_OF_RUN, MAX_REQUESTS = 32, 256, 32
"""How many signals are kept until a node task waits, for it and for its whole run; how many request ids are known."""
MAX_PAYLOAD_BYTES = 64 * 1024
MAX_FORM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wait:
    """What ends a wait: a signal, or the time `till` (epoch ms, 0 for never), whichever comes first.

    `after_ms`, unless it is -1, replaces `till` by a time after the wait begins. `form` (JSON text) is what a person is
    asked, `title` its title. A signal completes the node task, and its payload is emitted by the handle `completes`. If
    that is "", the node task runs again, unless it `decides`: then the answer is emitted by `approved` or `rejected`.
    When the time comes, the node task fails with `late_error`, or completes with `late` (handle, JSON text), or goes on
    as after a signal whose payload is null. With `passes` it emits the value of its first live input edge instead of
    that of `late`. With a `flow_id` it waits for a cycle of that flow to end; the scheduler begins and reports it.
    """

    signal: str = ""
    till: int = 0
    after_ms: int = -1
    form: str = ""
    title: str = ""
    completes: str = ""
    decides: bool = False
    late: tuple[str, str] | None = None
    late_error: str = ""
    passes: bool = False
    since: int = 0
    flow_id: str = ""

    def handle(self, *, approved: bool) -> str:
        """Return the output handle by which an answer is emitted, "" when the node runs again."""
        return (APPROVED if approved else REJECTED) if self.decides else self.completes


@dataclass(frozen=True, slots=True)
class Resumption:
    """What ended a wait at `at` (epoch ms): a signal with its payload (JSON text) and sender, or time, with neither."""

    at: int
    signal: str = ""
    payload: str = "null"
    by: str = ""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal for a node task whose attempt `attempt` is suspended, -1 when the node task does not wait.

    Its payload is emitted by `handle`, "" when the node should run again instead.
    """

    task_id: str
    component_id: str
    signal: str
    payload: str
    by: str
    request_id: str = ""
    attempt: int = -1
    handle: str = ""
