"""The workloads, the same for every side: graphs, number of flows, flows in flight, and the answers that are expected.

Every node is a no-op that passes on a small JSON object, `{"n": <integer>}`, with n raised by one, so that a side that
skips nodes or loses a value gives a wrong answer instead of a good figure.

- chain: 10 nodes in sequence; node k returns n + 1, so a flow that began with 0 ends with 10.
- fan: one source (n = 1), 100 nodes in parallel that each return n + 1, one join that receives all of their values
  and returns their sum, 200.
- single: one node, n = 1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

CHAIN_LENGTH = 10
FAN_WIDTH = 100
FLOW_TIMEOUT_S = 120.0
"""Seconds within which a side must finish one workload; after that the workload has failed."""


class Shape(StrEnum):
    """The graph of a workload's flows."""

    CHAIN = "chain"
    FAN = "fan"
    SINGLE = "single"


_NODES = {Shape.CHAIN: CHAIN_LENGTH, Shape.FAN: FAN_WIDTH + 2, Shape.SINGLE: 1}
_HOPS = {Shape.CHAIN: CHAIN_LENGTH, Shape.FAN: 3, Shape.SINGLE: 1}
_ANSWERS = {Shape.CHAIN: CHAIN_LENGTH, Shape.FAN: FAN_WIDTH * 2, Shape.SINGLE: 1}


@dataclass(frozen=True, slots=True)
class Workload:
    """`flows` flows of one shape, at most `in_flight` of them begun and not yet seen finished by the client.

    With `bulk` all flows are handed over in the side's own bulk call, so `in_flight` equals `flows`. `warm_up` flows
    run first, under the same rules, and are not measured. With `eager` nodes, a Tradewind worker goes on to the next
    node before the previous result is stored. With `one_flow`, all are cycles of the same flow of Tradewind's. Peers
    ignore both: they know no flows, and run the same task again.
    """

    name: str
    shape: Shape
    flows: int
    in_flight: int
    warm_up: int
    bulk: bool = False
    eager: bool = False
    one_flow: bool = False

    @property
    def nodes(self) -> int:
        """The nodes of all measured flows together."""
        return self.flows * _NODES[self.shape]

    @property
    def hops(self) -> int:
        """The nodes on the longest path of one flow."""
        return _HOPS[self.shape]

    @property
    def answer(self) -> int:
        """The expected `n` in the value of a flow's last node."""
        return _ANSWERS[self.shape]

    def scaled(self, factor: float) -> Workload:
        """Return the workload with `factor` times the flows: at least one, and no more in flight than there are."""
        flows = max(1, round(self.flows * factor))
        return dataclasses.replace(self, flows=flows, in_flight=min(self.in_flight, flows))

    def warming(self) -> Workload:
        """The flows that run before the measured ones, as a workload."""
        return dataclasses.replace(self, flows=self.warm_up, in_flight=min(self.in_flight, self.warm_up))

    def check(self, n: object) -> None:
        """Raise ValueError when `n`, from the value of a flow's last node, is not what the graph must yield."""
        if n != self.answer:
            raise ValueError(
                f"{self.name}: a flow ended with n = {n!r}, expected {self.answer}; nodes were skipped or lost"
            )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("chain-1", Shape.CHAIN, flows=100, in_flight=1, warm_up=10),
        Workload("chain-1-eager", Shape.CHAIN, flows=100, in_flight=1, warm_up=10, eager=True),
        Workload("chain-50", Shape.CHAIN, flows=500, in_flight=50, warm_up=50),
        Workload("chain-50-eager", Shape.CHAIN, flows=500, in_flight=50, warm_up=50, eager=True),
        Workload("fan-1", Shape.FAN, flows=10, in_flight=1, warm_up=1),
        Workload("fan-10", Shape.FAN, flows=40, in_flight=10, warm_up=5),
        Workload("single-1000", Shape.SINGLE, flows=1000, in_flight=50, warm_up=50),
        Workload("single-1000-bulk", Shape.SINGLE, flows=1000, in_flight=1000, warm_up=50, bulk=True),
        Workload(
            "single-1000-bulk-one-flow", Shape.SINGLE, flows=1000, in_flight=1000, warm_up=50, bulk=True, one_flow=True
        ),
    )
}
