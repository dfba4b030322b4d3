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

    def payload(self, state: ChainState | None) -> str:
        """Return the event's payload, a JSON object; `state` is the run's record, None if it is gone."""
        payload: dict[str, object] = {
            "flow_id": self.run.flow_id,
            "cycle": self.run.cycle,
            "run": self.run.run,
            "run_id": self.run_id,
            "status": self.status.value,
            "end_time": _timestamp(self.end_ms),
        }
        if state is not None and state.facts.run_id == self.run_id:
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
