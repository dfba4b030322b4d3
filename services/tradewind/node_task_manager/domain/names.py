"""Names of runs, components and node tasks, and the fencing tokens of their attempts.

They are created for every run and node task, and so are structs, as submissions are: a named tuple takes three times as
long to create. None refers back to itself, so the garbage collector need not look at them.
"""

import re
from typing import Self

import msgspec

from tradewind.server.identifiers import IDENTIFIER, is_identifier

TASK = "task:"
BATCH = "batch:"
_COUNTS = 2**31
"""Cycle, run, item, shard and attempt numbers are below this, so that an int32 can hold them."""
_NODE_TASK = re.compile(rf"({IDENTIFIER}):([0-9]{{1,10}}):([0-9]{{1,10}}):({IDENTIFIER})(?::([0-9]{{1,10}}))?")
_matches_token = re.compile(r"([0-9]{1,10})~([^~]*)~([0-9]{1,10})~([^~]+)").fullmatch


class RunName(msgspec.Struct, frozen=True, gc=False):
    """A run: `<flow_id>:<cycle>:<run>` of a cycle; outside any flow `ad_hoc`, which is `task:<id>` or `batch:<id>`."""

    flow_id: str
    cycle: int
    run: int
    ad_hoc: str = ""

    @classmethod
    def of_cycle(cls, name: str) -> Self:
        """Parse the name of a run of a cycle, which is known to be valid."""
        flow_id, cycle, run = name.split(":")
        return cls(flow_id, int(cycle), int(run))

    @classmethod
    def of_task(cls, id: str) -> Self:
        """Name the run that is an ad-hoc task."""
        return cls("", 0, 0, TASK + id)

    @classmethod
    def of_batch(cls, id: str) -> Self:
        """Name the run that is a batch."""
        return cls("", 0, 0, BATCH + id)

    @classmethod
    def of_node_task(cls, task_id: str) -> "RunName":
        """Name the run of a node task, given an id that is known to be valid."""
        parts = task_id.split(":", 3)
        if len(parts) > 3:
            return cls(parts[0], int(parts[1]), int(parts[2]))
        return TaskName.parse(task_id).run

    @property
    def batch_id(self) -> str:
        """The id of the batch, "" when the run is not a batch."""
        return self.ad_hoc.removeprefix(BATCH) if self.ad_hoc.startswith(BATCH) else ""

    @property
    def log(self) -> str:
        """The name of the log that its lines are in, which all runs of a cycle share."""
        return self.ad_hoc or f"{self.flow_id}:{self.cycle}"

    def __str__(self) -> str:
        return self.ad_hoc or f"{self.flow_id}:{self.cycle}:{self.run}"

    def task_id(self, node_id: str) -> str:
        """Return the id of the node task of a node in this run; the only node of an ad-hoc task has the id ""."""
        return f"{self}:{node_id}" if node_id else str(self)


class TaskName(msgspec.Struct, frozen=True, gc=False):
    """A node task: `<flow_id>:<cycle>:<run>:<node_id>[:<item>]`, `batch:<id>:<index>` or `task:<id>`.

    `item` is the place of an item of a mapped node, -1 for any other node task.
    """

    run: RunName
    node_id: str
    item: int = -1

    @classmethod
    def parse(cls, task_id: str) -> Self:
        """Parse the id of a node task; raises ValueError when it is not one."""
        found = _NODE_TASK.fullmatch(task_id)
        if found is not None:
            flow_id, cycle, run, node_id, item = found.groups()
            place = -1 if item is None else int(item)
            if int(cycle) < _COUNTS and int(run) < _COUNTS and place < _COUNTS:
                return cls(RunName(flow_id, int(cycle), int(run)), node_id, place)
        parts = task_id.split(":")
        if len(parts) == 2 and parts[0] == "task" and is_identifier(parts[1]):
            return cls(RunName("", 0, 0, task_id), "")
        if len(parts) == 3 and parts[0] == "batch" and is_identifier(parts[1]) and is_identifier(parts[2]):
            return cls(RunName.of_batch(parts[1]), parts[2])
        if len(parts) in (4, 5) and all(map(_is_count, (parts[1], parts[2], *parts[4:]))):
            raise ValueError(f'"{task_id}" contains an invalid flow or node id')
        raise ValueError(
            f'"{task_id}" is not <flow_id>:<cycle>:<run>:<node_id>[:<item>], task:<id> or batch:<id>:<index>'
        )

    @property
    def within_run(self) -> str:
        """Its name among the node tasks of its run: `<node_id>[:<item>]`."""
        return self.node_id if self.item < 0 else f"{self.node_id}:{self.item}"

    @property
    def mapped(self) -> str:
        """The id of the node task that this one is an item of, "" for any other."""
        return self.run.task_id(self.node_id) if self.item >= 0 else ""


class Token(msgspec.Struct, frozen=True, gc=False):
    """Fencing token of one attempt: `<shard>~<task_id>~<attempt>~<nonce>`; none of the parts can hold a `~`."""

    shard: int
    task_id: str
    attempt: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.shard}~{self.task_id}~{self.attempt}~{self.nonce}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a token; raises ValueError when `text` cannot be one."""
        found = _matches_token(text)
        if found is not None:
            shard_text, task_id, attempt_text, nonce = found.groups()
            shard, attempt = int(shard_text), int(attempt_text)
            if shard < _COUNTS and attempt < _COUNTS:
                return cls(shard, task_id, attempt, nonce)
        raise ValueError(f'"{text[:200]}" is not a token')


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < _COUNTS
