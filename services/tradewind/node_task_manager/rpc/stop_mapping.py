"""Maps between Protobuf and the domain: stops, and who asks for something."""

from tradewind.api.node_task_manager.v1 import batch_pb2, node_task_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.domain.node_task import StopMark
from tradewind.node_task_manager.rpc.times import timestamp

MAX_REASON = 1024
MAX_BY = 128
"""The most characters of a reason, and of the name of whoever asks for something; more are cut off."""


def reason_and_actor(
    request: pb2.StopComponentRequest
    | pb2.TerminateNodeTaskRequest
    | batch_pb2.CancelTaskRequest
    | batch_pb2.CancelBatchRequest,
    reason: str,
    by: str,
) -> tuple[str, str]:
    """Return why and by whom something is to be stopped; `reason` and `by` stand in where the request does not say."""
    return request.reason[:MAX_REASON] or reason, request.by[:MAX_BY] or by


def stop_mark(mark: StopMark | None) -> node_task_pb2.StopMark | None:
    """Return who asked for a stop, None when nobody did."""
    return node_task_pb2.StopMark(reason=mark.reason, by=mark.by, at=timestamp(mark.at)) if mark else None
