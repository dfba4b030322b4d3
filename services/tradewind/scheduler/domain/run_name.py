"""The name of a run of a cycle."""

from typing import NamedTuple


class RunName(NamedTuple):
    """A run of a cycle; a tuple, because it is the key of every lookup on the hot path."""

    flow_id: str
    cycle: int
    run: int = 0

    def __str__(self) -> str:
        return f"{self.flow_id}:{self.cycle}:{self.run}"

    @classmethod
    def parse(cls, text: str) -> "RunName":
        """Return the run that `<flow_id>:<cycle>:<run>` names. Raises ValueError for other text."""
        flow_id, cycle, run = text.split(":")
        return cls(flow_id, int(cycle), int(run))
