"""Due triggers of flows, and what they are answered."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DueFlow:
    """A flow is due at a planned time, which it was found to be at `now_ms` by the store's clock.

    `token` names the lease under which the trigger service says so, `traceparent` the trace that its firing began.
    """

    flow_id: str
    planned_ms: int
    now_ms: int
    schedule_epoch: int
    token: str
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class DueAnswer:
    """What a due trigger is answered: when the flow is due next, that it is due no more, or to come again.

    `next_ms` is a planned time, 0 for no more. With `retry_ms` (-1 for none) the same planned time comes again after so
    long, because of `error`.
    """

    token: str
    next_ms: int = 0
    retry_ms: int = -1
    error: str = ""
