"""Maps between Protobuf and the domain: queues."""

from tradewind.api.node_task_manager.v1 import queue_pb2
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.node_task_manager.use_cases.queue_statistics import QueueStatistics

_MAX_QUEUES = 10_000


def queue_stats(found: QueueStatistics) -> queue_pb2.GetQueueStatsResponse:
    """Return how many node tasks wait and run."""
    return queue_pb2.GetQueueStatsResponse(
        queues=[
            queue_pb2.QueueDepth(
                node_type=depth.node_type,
                user_id=depth.user_id,
                queued=depth.queued,
                running=depth.running,
                first_ready_at=timestamp(depth.first_ready_at),
            )
            for depth in found.queues[:_MAX_QUEUES]
        ],
        queued=found.queued,
        running=found.running,
        first_ready_at=timestamp(found.first_ready_at),
        completed=found.totals.get("completed", 0),
        failed=found.totals.get("failed", 0),
        terminated=found.totals.get("terminated", 0),
        skipped=found.totals.get("skipped", 0),
        failed_by_code={
            name.removeprefix("failed:"): count for name, count in found.totals.items() if name.startswith("failed:")
        },
        cleaned_runs=found.cleaned["runs"],
        cleaned_node_tasks=found.cleaned["node_tasks"],
        cleaned_entries=found.cleaned["entries"],
    )
