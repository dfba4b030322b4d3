"""Reasons as protobuf messages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tradewind.api.node_task_manager.v1 import explanation_pb2
from tradewind.server.reasons import Reason


def reason_messages(reasons: Iterable[Reason]) -> list[explanation_pb2.Reason]:
    """Return reasons as messages."""
    messages = []
    for reason in reasons:
        message = explanation_pb2.Reason(code=reason.code, sentence=reason.sentence)
        message.facts.update({name: _plain(fact) for name, fact in reason.facts.items()})
        messages.append(message)
    return messages


def _plain(fact: Any) -> Any:
    if isinstance(fact, Mapping):
        return {name: _plain(value) for name, value in fact.items()}
    if isinstance(fact, Sequence) and not isinstance(fact, str):
        return [_plain(value) for value in fact]
    return fact
