"""Maps between Protobuf and the domain: ad-hoc tasks and batches."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from tradewind.api.node_task_manager.v1 import batch_pb2, node_task_pb2
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.batch import BatchProgress, BatchStatus, batch_status
from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.plan import START_TO_CLOSE_MS
from tradewind.node_task_manager.rpc.cache_mapping import cache_use
from tradewind.node_task_manager.rpc.checks import at_most
from tradewind.node_task_manager.rpc.retry_mapping import retry_policy
from tradewind.node_task_manager.rpc.stop_mapping import stop_mark
from tradewind.node_task_manager.rpc.submission_mapping import concurrency, key_rate
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation
from tradewind.server.telemetry import current_traceparent
from tradewind.server.timestamps import milliseconds

Status = TypeVar("Status", bound=StrEnum)


def task_work(request: batch_pb2.SubmitTaskRequest) -> AdHocWork:
    """Read the work of a task."""
    return _work(request, (request.parameters_json,), batch=False)


def batch_work(head: batch_pb2.BatchHead, parameters: Sequence[str]) -> AdHocWork:
    """Read the work of a batch."""
    return _work(head, tuple(parameters), batch=True)


def _work(
    head: batch_pb2.SubmitTaskRequest | batch_pb2.BatchHead, parameters: tuple[str, ...], *, batch: bool
) -> AdHocWork:
    options = head.options
    closes = options.HasField("start_to_close")
    return AdHocWork(
        user_id=head.user_id,
        node_type=head.node_type,
        parameters=parameters,
        batch=batch,
        request_id=head.request_id,
        schedule_to_start_ms=milliseconds(options.schedule_to_start),
        start_to_close_ms=milliseconds(options.start_to_close) if closes else START_TO_CLOSE_MS,
        heartbeat_ms=milliseconds(options.heartbeat_timeout),
        total_ms=milliseconds(options.total_timeout),
        retry=retry_policy(options),
        priority=options.priority,
        concurrency=concurrency(options),
        rate=key_rate(options),
        traceparent=current_traceparent(),
        cache=cache_use(options.cache),
    )


def batch(component: Component) -> batch_pb2.Batch:
    """Return a batch with its progress."""
    progress = BatchProgress.of(component)
    return batch_pb2.Batch(
        batch_id=component.run.batch_id,
        user_id=component.user_id,
        node_type=component.node_type,
        status=batch_pb2.BatchStatus.Value(f"BATCH_STATUS_{batch_status(component).upper()}"),
        progress=batch_pb2.BatchProgress(
            total=progress.total,
            queued=progress.queued,
            running=progress.running,
            completed=progress.completed,
            failed=progress.failed,
            cancelled=progress.cancelled,
            percent=progress.percent,
            cached=progress.cached,
        ),
        stop=stop_mark(component.stop),
        submitted_at=timestamp(component.submitted_at),
        finished_at=timestamp(component.finished_at),
    )


def batch_statuses(numbers: Sequence[int]) -> frozenset[BatchStatus]:
    """Read wanted statuses. Raises InvalidInput."""
    known: dict[int, BatchStatus] = {
        batch_pb2.BatchStatus.Value(f"BATCH_STATUS_{each.upper()}"): each for each in BatchStatus
    }
    return frozenset(_known(known, numbers))


def task_statuses(numbers: Sequence[int]) -> frozenset[NodeTaskStatus]:
    """Read wanted statuses. Raises InvalidInput."""
    known: dict[int, NodeTaskStatus] = {
        node_task_pb2.NodeTaskStatus.Value(f"NODE_TASK_STATUS_{each.upper()}"): each for each in NodeTaskStatus
    }
    return frozenset(_known(known, numbers))


def _known(known: dict[int, Status], numbers: Sequence[int]) -> Sequence[Status]:
    at_most("statuses", numbers)
    require(
        Violation(f"statuses[{place}]", f"{number} is not a known status") if number not in known else None
        for place, number in enumerate(numbers)
    )
    return [known[number] for number in numbers]
