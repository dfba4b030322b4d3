"""The end of a run, as it is published to listeners."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName

MAX_KEPT = 10_000
"""The most ends of a partition that wait to be published; beyond that the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended with a status at `end_ms`."""

    run: RunName
    run_id: str
    status: CycleStatus
    end_ms: int

    def is_of(self, state: ChainState | None) -> bool:
        """Whether `state` is the record of this run; it may be gone, or be of another run with its name."""
        return state is not None and state.facts.run_id == self.run_id

    def payload(self, state: ChainState | None, owner: str | None = None) -> str:
        """Return the event's payload, a JSON object; `state` is what is on record, `owner` the flow's if known."""
        payload: dict[str, object] = {
            "flow_id": self.run.flow_id,
            "cycle": self.run.cycle,
            "run": self.run.run,
            "run_id": self.run_id,
            "status": self.status.value,
            "end_time": _timestamp(self.end_ms),
        }
        if owner:
            payload["user_id"] = owner
        if state is not None and self.is_of(state):
            facts = state.facts
            payload |= {
                "user_id": facts.user_id,
                "origin": facts.origin.value,
                "planned_time": _timestamp(facts.planned_ms),
                "start_time": _timestamp(facts.start_ms),
                "error_code": state.notes.error,
            }
        return json.dumps(payload, separators=(",", ":"))


def _timestamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
