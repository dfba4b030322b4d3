"""What users import is pinned: a name that goes or comes does so on purpose."""

import importlib

import pytest

from tests.house.project import parts

PUBLIC: dict[str, list[str]] = {
    "tradewind.client": [
        "Aborted",
        "Addresses",
        "BatchFailed",
        "BatchHandle",
        "BatchProgress",
        "BatchRecord",
        "BatchStatus",
        "CacheSettings",
        "CacheStatistics",
        "Client",
        "ComponentStructure",
        "Conflict",
        "CycleDescription",
        "CycleFailed",
        "CycleHandle",
        "CycleOrigin",
        "CycleRecord",
        "CycleStatistics",
        "CycleStatus",
        "DEFAULT_ADDRESS",
        "Definition",
        "Exhausted",
        "FlowAnalysis",
        "FlowDescription",
        "FlowHandle",
        "FlowRecord",
        "FlowStatus",
        "InputHandle",
        "InvalidInput",
        "LogLevel",
        "LogLine",
        "LogSource",
        "NodeError",
        "NodeFailure",
        "NodeTaskRecord",
        "NodeTaskStatus",
        "NodeType",
        "NotFound",
        "OutputHandle",
        "PastAttempt",
        "QueueDepth",
        "QueueStatistics",
        "RegisteredFlow",
        "RunRequest",
        "ServerFault",
        "Signal",
        "SignalStatus",
        "StatusCounts",
        "SyncBatchHandle",
        "SyncClient",
        "SyncCycleHandle",
        "SyncFlowHandle",
        "SyncTaskHandle",
        "SystemConfig",
        "TaskFailed",
        "TaskHandle",
        "TimedOut",
        "TradewindError",
        "Unavailable",
        "Unreachable",
        "Violation",
        "WorkerRecord",
        "WorkerStatus",
        "WrongStatus",
    ],
    "tradewind.flow": [
        "Cache",
        "Flow",
        "FlowError",
        "FlowFileError",
        "Handle",
        "Node",
        "Retry",
        "Timeouts",
        "parse_flow",
        "read_flow",
        "spec_of",
        "weather_of",
    ],
    "tradewind.testing": ["LogLine", "NodeFailure", "NodeRun", "run_node", "running_stack"],
    "tradewind.worker": [
        "Context",
        "Emit",
        "Fatal",
        "Gather",
        "Node",
        "NodeStopExecution",
        "NodeStopExecutionException",
        "RetryLater",
        "Worker",
        "WorkerError",
        "load_nodes",
        "node",
    ],
}


@pytest.mark.parametrize("part", sorted(PUBLIC.keys() & parts().keys()))
def test_public_names_are_pinned(part: str) -> None:
    """`__all__` is the pinned list, and each name in it is there and says what it is."""
    module = importlib.import_module(part)

    assert sorted(module.__all__) == PUBLIC[part]
    assert [name for name in PUBLIC[part] if not getattr(module, name).__doc__] == []
