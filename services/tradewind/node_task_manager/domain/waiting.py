"""Waits: what a suspended node task waits for, what ends its wait, and signals."""

from dataclasses import dataclass

from tradewind.server.built_in.approvals import APPROVED, REJECTED

MOST_KEPT, MOST_KEPT_OF_RUN, MOST_REQUESTS = 32, 256, 32
"""How many signals are kept until a node task waits, of it and of its whole run; how many request ids are known."""
MOST_PAYLOAD_BYTES = 64 * 1024
MOST_FORM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wait:
    """What ends a wait: a signal, or the time `till` (epoch ms, 0 for never), whichever comes first.

    `after_ms` from when the wait begins stands for `till`, unless it is -1. `form` is JSON text of what a person is
    asked, `title` its title. By `completes` the payload of the signal is emitted and the node task is completed; where
    that is "" it runs again, unless it `decides`: then the answer is emitted by `approved` or `rejected`. When the time
    comes it fails for the reason `late_error`, or is completed with `late` (handle, JSON text), or goes on as after a
    signal whose payload is null. With `passes` it emits what its first live input edge brought in place of `late`'s.
    With a `flow_id` it waits for the end of a cycle of that flow, which the scheduler begins and reports.
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
    """What ended a wait at `at` (epoch ms): a signal with its payload (JSON text) and sender, or the time without."""

    at: int
    signal: str = ""
    payload: str = "null"
    by: str = ""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal for a node task whose attempt `attempt` is suspended, or with -1 for one that does not wait now.

    `handle` is how its payload is emitted, "" when the node is to run again.
    """

    task_id: str
    component_id: str
    signal: str
    payload: str
    by: str
    request_id: str = ""
    attempt: int = -1
    handle: str = ""
