"""The raw keys of a shard, as tests read them."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.servers import RedisServer
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.server.redis.client import connect

BASE = "trading_flow:{s0}:"
TERMINAL = ("completed", "failed", "terminated", "skipped")
OPEN = 2.0**46
SETS = (
    *("inflight", "start_deadlines", "ready_types", "node_tasks_list", "ended_runs", "delayed"),
    *("blocked_of", "parked", "to_clean"),
)
FACTS_OF_COMPONENT: tuple[str, ...] = (
    *("run_id", "user_id", "plan", "nodes", "policy", "partition", "planned", "traceparent", "parts", "submitted_at"),
    "node_type",
    "edition",
    "has_inputs",
)
STATE_OF_COMPONENT = ("status", "completed", "sinks", "eventful", "finished_at")
STATE_OF_TASK = (
    *("status", "component_id", "index", "registered_at", "ready_at", "attempt", "nonce", "worker_id", "started_at"),
    *("close_at", "edge", "stopping", "slots", "ended"),
)
"""What the fields `facts` and `state` hold, in order."""


@dataclass
class Keys:
    """The keys of a shard by kind, with their contents."""

    tasks: dict[str, dict[str, str]] = field(default_factory=dict)
    components: dict[str, dict[str, str]] = field(default_factory=dict)
    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    plans: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    sets: dict[str, dict[str, float]] = field(default_factory=dict)
    ttls: dict[str, int] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    signals: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    todo: int = 0

    def open_runs(self) -> set[str]:
        """Return the runs with an unfinished component."""
        return {name.rpartition(":")[0] for name, each in self.components.items() if each["status"] != "finished"}

    def has_ended(self, task_id: str) -> bool:
        """Tell whether a node task is in a terminal status, or gone."""
        return self.tasks.get(task_id, {}).get("status", TERMINAL[0]) in TERMINAL

    def has_later_run(self, run: str) -> bool:
        """Tell whether a later run of the same cycle is on record: then this one stays as long as that one."""
        cycle, _, number = run.rpartition(":")
        return run.count(":") == 2 and f"{cycle}:{int(number) + 1}" in self.runs

    def owner(self, task: dict[str, str], task_id: str) -> dict[str, str]:
        """Return the component of a node task."""
        return self.components[f"{run_of(task_id)}:{task['component_id']}"]

    def own_limits(self, task_id: str, user: str) -> set[str]:
        """Return the limits that may hold back this particular node task."""
        run = run_of(task_id)
        node = self.node(self.tasks[task_id], run)
        key = {f"key:{user}:{node['key']}"} if "key" in node else set()
        return key | {f"flow:{run.split(':')[0]}", f"adhoc:{user}"}

    def node(self, task: dict[str, str], run: str) -> Any:
        """Return the node of a node task as scripts see it."""
        plan = self.components[f"{run}:{task['component_id']}"]["plan"]
        return msgspec.msgpack.decode(self.plans[plan][f"n:{task['index']}".encode()])


def run_of(task_id: str) -> str:
    """Return the run of a node task, by its id."""
    return str(TaskName.parse(task_id).run)


async def read_keys(server: RedisServer) -> Keys:
    """Read all keys of the shard."""
    found = Keys()
    client = connect(server.url())
    try:
        names = [name for name in await server.keys() if name.startswith(BASE)]
        pipeline = client.pipeline(transaction=False)
        for name in names:
            short = name.removeprefix(BASE)
            pipeline.execute_command("PTTL", name)
            if short.startswith(("run:", "plan:")):
                pipeline.hgetall(name)
            elif _is_sorted_set(short):
                pipeline.execute_command("ZRANGE", name, 0, -1, "WITHSCORES")
            elif short.startswith("items:"):
                pipeline.execute_command("LLEN", name)
            else:
                pipeline.execute_command("TYPE", name)
        values = await pipeline.execute() if names else []
    finally:
        await client.end()
    for name, ttl, value in zip(names, values[::2], values[1::2], strict=True):
        if ttl == -2:
            continue  # It expired after it was listed.
        short = name.removeprefix(BASE)
        found.ttls[short] = ttl
        if short.startswith("run:"):
            _read_run(found, short.removeprefix("run:"), value)
        elif short.startswith("plan:"):
            found.plans[short.removeprefix("plan:")] = value
        elif _is_sorted_set(short):
            found.sets[short] = dict(_pairs(value))
        elif short.startswith("items:"):
            found.lists[short.removeprefix("items:")] = value
        found.todo += short == "todo"
    return found


def _read_run(found: Keys, run: str, record: dict[bytes, bytes]) -> None:
    """Decode the hash of a run."""
    own = found.runs.setdefault(run, {})
    components: dict[str, dict[str, str]] = defaultdict(dict)
    tasks: dict[str, dict[str, str]] = defaultdict(dict)
    for name, value in record.items():
        field = name.decode()
        text = value.decode(errors="surrogateescape")
        if of_component := re.fullmatch(r"([^:/]+)/(.+)", field):
            components[of_component[1]][of_component[2]] = text
        elif of_task := re.fullmatch(r"([^:/]*(?::\d+)?):(.+)", field):
            tasks[of_task[1]][of_task[2]] = text
        else:
            own[field] = text
    for component_id, each in components.items():
        state = _unpacked(each["state"], STATE_OF_COMPONENT) if "state" in each else {"status": "running"}
        found.components[f"{run}:{component_id}"] = each | _unpacked(each["facts"], FACTS_OF_COMPONENT) | state
    for within, each in tasks.items():
        if "signals" in each:
            found.signals[run].append(each["signals"])
        if "state" in each:
            found.tasks[f"{run}:{within}" if within else run] = each | _unpacked(each["state"], STATE_OF_TASK)


def _unpacked(text: str, names: tuple[str, ...]) -> dict[str, str]:
    packed = text.encode(errors="surrogateescape")
    values = msgspec.msgpack.decode(bytes([0x90 + len(names)]) + packed)
    return {k: str(v) for k, v in zip(names, values, strict=True) if v is not None}


def packed_state(status: str, completed: int = 0) -> bytes:
    """Return the field `state` of a component, as packing.lua writes it."""
    return b"".join(map(msgspec.msgpack.encode, (status, completed, completed, False, None)))


def _is_sorted_set(name: str) -> bool:
    prefixes = ("ready:", "worker_tasks:", "ring:", "flow_runs:", "dead_letters:", "user_runs:", "blocked:", "slots:")
    return name.startswith((*prefixes, "left:")) or name in SETS


def _pairs(value: list[Any]) -> Iterable[tuple[str, float]]:
    """Return members and scores, whether they come as RESP3 pairs or alternate as in RESP2."""
    flat = [part for pair in value for part in pair] if value and isinstance(value[0], list | tuple) else value
    return ((member.decode(), float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True))
