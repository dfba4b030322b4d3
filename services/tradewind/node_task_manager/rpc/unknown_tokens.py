"""Tokens in a worker's report that cannot be leases here: reported as lost, so that the worker drops them."""

from collections.abc import Collection

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.names import Token


def remove_unknown_tokens(request: pb2.ReportNodeTasksRequest, shards: Collection[int]) -> list[work_pb2.LeaseLoss]:
    """Remove from a report all tokens that cannot be leases of these shards; return them as lost."""
    unknown: dict[str, None] = {}

    def is_unknown(token: str) -> bool:
        try:
            known = Token.parse(token).shard in shards
        except ValueError:
            known = False
        if not known:
            unknown[token] = None
        return not known

    for items in (request.completions, request.failures, request.progress, request.logs):
        for at in reversed(range(len(items))):
            if is_unknown(items[at].token):
                del items[at]
    for tokens in (request.give_back_tokens, request.held_tokens):
        for at in reversed(range(len(tokens))):
            if is_unknown(tokens[at]):
                del tokens[at]
    reason = "no lease has this token"
    return [work_pb2.LeaseLoss(token=token, reason=reason) for token in unknown]
