"""The worker SDK: functions become nodes with `@node`, and a `Worker` runs them for Tradewind."""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.worker.context import Context
from tradewind.worker.errors import Fatal, MemoryFault, RetryLater, WorkerError
from tradewind.worker.loading import load_nodes
from tradewind.worker.memory import NodeMemory
from tradewind.worker.nodes import Node, node
from tradewind.worker.outputs import Emit
from tradewind.worker.parameters import Gather
from tradewind.worker.stopping import NodeStopExecution, NodeStopExecutionException
from tradewind.worker.waiting import Resumed, Wait
from tradewind.worker.worker import Worker

__all__ = [
    "Context",
    "Emit",
    "Fatal",
    "Gather",
    "MemoryFault",
    "Node",
    "NodeMemory",
    "NodeStopExecution",
    "NodeStopExecutionException",
    "Resumed",
    "RetryLater",
    "Wait",
    "Worker",
    "WorkerError",
    "load_nodes",
    "node",
]
