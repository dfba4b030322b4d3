"""Tokens in a worker's report that cannot be leases here: reported as lost, so that the worker drops them."""

from collections.abc import Collection

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.names import Token


def set_aside(request: pb2.ReportNodeTasksRequest, shards: Collection[int]) -> list[work_pb2.LeaseLoss]:
    """Remove from a report all tokens that cannot be leases of these shards; return them as lost."""
    strange: dict[str, None] = {}

    def is_strange(token: str) -> bool:
        try:
            known = Token.parse(token).shard in shards
        except ValueError:
            known = False
        if not known:
            strange[token] = None
        return not known

    for items in (request.completions, request.failures, request.progress, request.logs):
        for at in reversed(range(len(items))):
            if is_strange(items[at].token):
                del items[at]
    for tokens in (request.give_back_tokens, request.held_tokens):
        for at in reversed(range(len(tokens))):
            if is_strange(tokens[at]):
                del tokens[at]
    reason = "no lease has this token"
    return [work_pb2.LeaseLoss(token=token, reason=reason) for token in strange]
