"""How workers and declarations look in Redis: lists of strings, workers in the order of `FIELDS` in lua/records.lua."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from tradewind.registry.domain.limits import Lifetimes
from tradewind.registry.domain.node_type import NodeType, NodeTypeRecord
from tradewind.registry.domain.worker import Worker, WorkerRecord

_encode = msgspec.json.Encoder().encode
_names = msgspec.json.Decoder(tuple[str, ...])
_labels = msgspec.json.Decoder(dict[str, str])
_node_type = msgspec.json.Decoder(NodeType)


Reply = TypeVar("Reply")


class Answer(msgspec.Struct, Generic[Reply], array_like=True):
    """What a script replies, with the keys of another type that it has removed, as `answer` in lua/records.lua does."""

    reply: Reply
    removed: list[str] = []


class NodeTypeRow(msgspec.Struct, array_like=True):
    """A declaration as lua/catalogue.lua returns it."""

    name: str
    declaration: str
    declared_at: str
    worker_ids: list[str]

    def record(self) -> NodeTypeRecord:
        """Return it as a record. Redis lists the workers by heartbeat, the record by id."""
        node_type = _node_type.decode(self.declaration)
        return NodeTypeRecord(node_type, int(self.declared_at), tuple(sorted(self.worker_ids)))

    @property
    def size(self) -> int:
        """The approximate size of the row in bytes."""
        return len(self.declaration.encode()) + sum(map(len, self.worker_ids))


def worker_row(worker: Worker) -> list[str]:
    """Return what a worker reports about itself: the fields up to `labels`."""
    return [
        worker.worker_id,
        worker.incarnation,
        worker.api_url,
        _encode(worker.node_types).decode(),
        str(worker.capacity),
        str(worker.running),
        worker.host,
        str(worker.pid),
        worker.sdk,
        _encode(dict(worker.labels)).decode(),
    ]


def worker_record(row: Sequence[str], lifetimes: Lifetimes, now: int) -> WorkerRecord:
    """Return the worker of a complete row, as of `now`."""
    worker_id, incarnation, api_url, node_types, capacity, running, host, pid, sdk, labels, *rest = row
    registered_at, last_heartbeat, status, _replaced = rest
    worker = Worker(
        worker_id=worker_id,
        incarnation=incarnation,
        capacity=int(capacity),
        running=int(running),
        api_url=api_url,
        node_types=_names.decode(node_types),
        host=host,
        pid=int(pid),
        sdk=sdk,
        labels=tuple(_labels.decode(labels).items()),
    )
    alive = lifetimes.alive(int(last_heartbeat), now)
    return WorkerRecord(worker, int(registered_at), int(last_heartbeat), status == "draining", alive=alive)


def declaration(node_type: NodeType) -> tuple[str, str]:
    """Return the name and the JSON text of a declaration."""
    return node_type.name, _encode(node_type).decode()
