"""Why something waits, or ended as it did."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from tradewind.api.node_task_manager.v1 import explanation_pb2


@dataclass(frozen=True, slots=True)
class Reason:
    """A stable code, a sentence, and the facts behind it by name, as docs/explain.md lists them."""

    code: str
    sentence: str
    facts: Mapping[str, Any]


def reasons_from(messages: Iterable[explanation_pb2.Reason]) -> tuple[Reason, ...]:
    """Read reasons."""
    return tuple(Reason(each.code, each.sentence, _whole(MessageToDict(each.facts))) for each in messages)


def _whole(value: Any) -> Any:
    """Turn whole floats back into the integers that they were before the wire."""
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
