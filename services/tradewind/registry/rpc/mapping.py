"""Maps workers and node types between Protobuf and the domain."""

from tradewind.api.registry.v1 import node_type_pb2, worker_pb2
from tradewind.registry.domain.node_type import InputHandle, NodeType, NodeTypeRecord, OutputHandle
from tradewind.registry.domain.worker import Worker, WorkerRecord, WorkerStatus
from tradewind.server.timestamps import timestamp

_STATUS = {
    WorkerStatus.ACTIVE: worker_pb2.WORKER_STATUS_ACTIVE,
    WorkerStatus.DRAINING: worker_pb2.WORKER_STATUS_DRAINING,
    WorkerStatus.OFFLINE: worker_pb2.WORKER_STATUS_OFFLINE,
}


def worker(message: worker_pb2.Worker) -> Worker:
    """Return what a worker reports about itself, without the fields that the registry sets."""
    return Worker(
        worker_id=message.worker_id,
        incarnation=message.incarnation,
        capacity=message.capacity,
        running=message.running,
        api_url=message.api_url,
        node_types=tuple(message.node_types),
        host=message.host,
        pid=message.pid,
        sdk=message.sdk,
        labels=tuple(sorted(message.labels.items())),
    )


def worker_message(record: WorkerRecord) -> worker_pb2.Worker:
    """Return a worker on record as a message."""
    worker = record.worker
    return worker_pb2.Worker(
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        api_url=worker.api_url,
        node_types=worker.node_types,
        capacity=worker.capacity,
        running=worker.running,
        status=_STATUS[record.status],
        registered_at=timestamp(record.registered_at),
        last_heartbeat=timestamp(record.last_heartbeat),
        host=worker.host,
        pid=worker.pid,
        sdk=worker.sdk,
        labels=dict(worker.labels),
    )


def node_type(message: node_type_pb2.NodeType) -> NodeType:
    """Return a declaration, without the fields that the registry sets."""
    return NodeType(
        name=message.type,
        description=message.description,
        inputs=tuple(
            InputHandle(handle.name, handle.schema_json, handle.required, handle.gather) for handle in message.inputs
        ),
        outputs=tuple(OutputHandle(handle.name, handle.schema_json) for handle in message.outputs),
        config_schema=message.config_schema_json,
        version=message.version,
    )


def node_type_message(record: NodeTypeRecord) -> node_type_pb2.NodeType:
    """Return a declared node type as a message."""
    declared = record.node_type
    return node_type_pb2.NodeType(
        type=declared.name,
        description=declared.description,
        inputs=[
            node_type_pb2.InputHandle(
                name=handle.name, schema_json=handle.schema, required=handle.required, gather=handle.gather
            )
            for handle in declared.inputs
        ],
        outputs=[
            node_type_pb2.OutputHandle(name=handle.name, schema_json=handle.schema) for handle in declared.outputs
        ],
        config_schema_json=declared.config_schema,
        worker_ids=record.worker_ids,
        declared_at=None if record.built_in else timestamp(record.declared_at),
        built_in=record.built_in,
        version=declared.version,
    )
