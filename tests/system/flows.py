"""Flows for the tests of the whole stack."""

from pathlib import Path

from tradewind.flow import Flow
from tradewind.flow.builder import Overlap


def sums(interval: str = "1h", overlap: Overlap = "skip") -> Flow:
    """Return the flow numbers -> total -> parity, with a separate component that always succeeds."""
    flow = Flow("sums", interval, overlap=overlap)
    feed = flow.node("feed", "numbers", {"count": 4})
    add = flow.node("add", "total")
    feed["numbers"] >> add["numbers"]
    add["total"] >> flow.node("sort", "parity")["total"]
    flow.node("alone", "numbers", {"start": 7})
    return flow


def failing() -> Flow:
    """Return a flow whose second node fails."""
    flow = Flow("failing", "1h")
    feed = flow.node("feed", "numbers")
    add = flow.node("add", "total")
    feed["numbers"] >> add["numbers"]
    add["total"] >> flow.node("bad", "failing")["total"]
    return flow


def gated(file: Path, interval: str = "1h") -> Flow:
    """Return the flow numbers -> total -> gate; the gate waits for a file."""
    flow = Flow("gated", interval)
    feed = flow.node("feed", "numbers")
    add = flow.node("add", "total")
    feed["numbers"] >> add["numbers"]
    add["total"] >> flow.node("gate", "gate", {"file": str(file)})["total"]
    return flow
