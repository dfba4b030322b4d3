"""How flows that cannot be read are told from many others."""

from collections.abc import Sequence
from typing import Any

from tradewind.scheduler.use_cases.find_readable import find_readable
from tradewind.server.faults import Unreadable

BROKEN = ("f3", "f444")


class Flows:
    """Flows of which none is on record and some cannot be read."""

    def __init__(self) -> None:
        self.calls = 0

    async def find(self, flow_ids: Sequence[str]) -> list[None]:
        self.calls += 1
        for flow_id in flow_ids:
            if flow_id in BROKEN:
                raise Unreadable(flow_id, "it is of another type")
        return [None] * len(flow_ids)


async def test_two_unreadable_flows_of_many_are_found_in_few_round_trips() -> None:
    flows: Any = Flows()
    names = [f"f{at}" for at in range(500)]
    found, unreadable = await find_readable(flows, names)
    assert list(found) == [name for name in names if name not in BROKEN]
    assert {name: error.key for name, error in unreadable.items()} == {name: name for name in BROKEN}
    assert flows.calls < 50
