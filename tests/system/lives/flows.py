"""Random flows that use what flows can do."""

import random
from collections.abc import Sequence
from typing import Any

from tradewind.flow import Cache, Flow, Retry, Timeouts
from tradewind.flow.builder import RunIf
from tradewind.flow.node import Node

EVENT = "news"
SECRET = "account"
"""The name of the only secret that workers have."""
OUTPUTS = {"branch": ("left", "right"), "approval": ("approved", "rejected")}
RUN_IF: tuple[RunIf | None, ...] = (None, None, "all_succeeded", "any_succeeded", "all_done")
TYPES = (
    *("work", "work", "work", "eager", "items", "large", "long", "signalled", "branch"),
    *("delay", "approval", "each", "flow", "count", "secretive", "join", "join"),
)


class FlowMaker:
    """Makes flows."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def make(self, flow_id: str, others: Sequence[str]) -> Flow:
        """Return a flow, whose nodes may run `others`, or whose cycles may begin when theirs end."""
        choice = self._draw.choice
        flow = Flow(
            flow_id,
            **self._schedule(others),
            overlap=choice((None, "skip", "queue_one", "queue_all", "cancel_running", "allow")),
            failure_policy=choice((None, None, "skip_downstream", "fail_fast", "continue")),
            timeout=choice((None, None, 20, 60, 200)),
            keep_cycles=choice((None, 2, 5)),
            keep_for=choice((None, None, "1m")),
            max_running=choice((None, None, 1, 3)),
            pause_after_failures=choice((None, None, 3)),
            labels=choice((None, {"team": "a"})),
        )
        for at in range(self._draw.randrange(1, 8)):
            self._add_node(flow, f"n{at}", others)
        for end_with in (flow.on_failure, flow.finally_):
            if self._happens(0.25):
                end_with(flow.node(f"{end_with.__name__}n", choice(("work", "long")), timeout=choice((None, 20))))
        return flow

    def _schedule(self, others: Sequence[str]) -> dict[str, Any]:
        if others and self._happens(0.15):
            return {"schedule": {"flow_finished": {"flow_ids": [self._draw.choice(others)]}}}
        schedules: tuple[dict[str, Any], ...] = (
            {"interval": self._draw.choice((5, 10, 30, 60))},
            {"schedule": {"interval": 15, "catch_up": self._draw.choice(("all", "latest", "none")), "max_cycles": 8}},
            {"schedule": {"interval": 4, "catch_up": self._draw.choice(("all", "latest", "none"))}},
            {
                "schedule": {
                    "cron": self._draw.choice(("*/20 0-59 0-23 * * *", "*/7 * 2 * * *", "30 1-59/2 1,3 * * *")),
                    "zone": "Europe/Berlin",
                    "jitter": self._draw.choice((0, 7)),
                }
            },
            {"schedule": {"event": {"name": EVENT}}},
            {"interval": 0},
        )
        return self._draw.choice(schedules)

    def _add_node(self, flow: Flow, node_id: str, others: Sequence[str]) -> None:
        draw, earlier = self._draw, flow.nodes
        lists = [node for node in earlier if node.type == "items"]
        node_type = draw.choice(TYPES)
        if (node_type == "each" and not lists) or (node_type == "flow" and not others):
            node_type = "work"
        if lists and node_type in ("each", "flow"):
            self._add_mapped(flow, node_id, draw.choice(lists), draw.choice(others) if node_type == "flow" else None)
            return
        run_if: RunIf | None = draw.choice(RUN_IF)
        seconds = draw.choice((1, 10, 50))
        if node_type == "flow":
            retry = draw.choice((None, Retry(2, initial=1)))
            node, entry = flow.sub_flow(node_id, draw.choice(others), run_if=run_if, retry=retry), "after"
        elif node_type == "delay":
            node, entry = flow.node(node_id, "delay", {"seconds": seconds}, run_if=run_if), "input"
        elif node_type == "approval":
            form = {
                "seconds": seconds,
                "form": {"title": "Buy?"},
                "then": draw.choice(("reject", "fail")),
            }
            node, entry = flow.node(node_id, "approval", form, run_if=run_if), "input"
        else:
            config = {"key": {"$secret": draw.choice((SECRET, SECRET, SECRET, "other"))}}
            node = flow.node(
                node_id, node_type, config if node_type == "secretive" else None, run_if=run_if, **self._rules()
            )
            entry = "after"
        if node_type == "join":
            for source in draw.sample(earlier, min(len(earlier), 3)):
                self._join(source, node, entry)
        elif earlier and self._happens(0.8):
            self._join(draw.choice(earlier), node, entry)

    def _add_mapped(self, flow: Flow, node_id: str, items: Node, sub_flow: str | None) -> None:
        """Add a node that runs for each item, or that runs a cycle of another flow for each item."""
        rules: dict[str, Any] = {
            "map": "item",
            "max_parallel": self._draw.choice((None, 1, 2)),
            "min_success": self._draw.choice((None, 1, 0.5)),
        }
        if sub_flow is not None:
            node = flow.sub_flow(node_id, sub_flow, **rules)
        else:
            node = flow.node(node_id, "each", **rules, **self._rules())
        self._join(items, node, "item")

    def _rules(self) -> dict[str, Any]:
        """Return limits of a node."""
        choice = self._draw.choice
        rules: dict[str, Any] = {
            "retry": choice((None, None, Retry(2, initial=1), Retry(3, initial=4))),
            "timeouts": choice(
                (None, None, None, Timeouts(total=30), Timeouts(start_to_close=2), Timeouts(schedule_to_start=1))
            ),
            "priority": choice((None, None, -5, 5)),
            "cache": Cache("analysis", scope=choice(("user", "flow", "global"))) if self._happens(0.15) else None,
        }
        if self._happens(0.15):
            when_full = choice(("wait", "drop_new", "cancel_oldest", "keep_newest"))
            return {**rules, "concurrency": {"key": choice("ab"), "max": choice((1, 2)), "when_full": when_full}}
        if self._happens(0.1):
            return {**rules, "rate": {"key": "r", "limit": "10/m"}}
        return rules

    def _join(self, source: Node, target: Node, entry: str) -> None:
        source[self._draw.choice(OUTPUTS.get(source.type, ("output",)))] >> target[entry]

    def _happens(self, share: float) -> bool:
        return self._draw.random() < share
