"""Outboxes, and what is reported by them."""

from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.worker.outbox import Outbox


def new_outbox(*held: str) -> Outbox:
    return Outbox(lambda: held)


def failure(token: str) -> work_pb2.NodeTaskFailure:
    return work_pb2.NodeTaskFailure(token=token, error=node_task_pb2.NodeTaskError(code="NODE_ERROR"))


def completed(request: work_pb2.WorkRequest) -> list[str]:
    return [completion.token for completion in request.completions]
