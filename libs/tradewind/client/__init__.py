"""The client: registers, runs and watches flows, and reports what became of them.

`Client` is asynchronous; `SyncClient` is the same for code without an event loop.
"""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.client.access import NewToken, QuotaRecord, Role, SessionKind, SessionRecord, UserRecord
from tradewind.client.ad_hoc_handles import BatchHandle, TaskHandle
from tradewind.client.addresses import DEFAULT_ADDRESS, Addresses
from tradewind.client.backfills import BackfillRecord, BackfillStatus
from tradewind.client.batches import BatchProgress, BatchRecord, BatchStatus
from tradewind.client.bulk_jobs import BulkAction, BulkItem, BulkJob, BulkJobStatus
from tradewind.client.caches import CacheSettings, CacheStatistics
from tradewind.client.client import Client
from tradewind.client.cycles import (
    CycleDescription,
    CycleOrigin,
    CycleRecord,
    CycleStatistics,
    CycleStatus,
    NodeFailure,
    Signal,
    SignalStatus,
)
from tradewind.client.definitions import Definition
from tradewind.client.due_triggers import DueTrigger, DueTriggers
from tradewind.client.errors import (
    Aborted,
    BatchFailed,
    Conflict,
    CycleFailed,
    Exhausted,
    InvalidInput,
    NotFound,
    PermissionDenied,
    ServerFault,
    TaskFailed,
    TimedOut,
    TradewindError,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Violation,
    WrongStatus,
)
from tradewind.client.findings import Diagnosis, Finding
from tradewind.client.firings import FiringOutcome, FiringRecord
from tradewind.client.flow_calls import FlowDescription, RunRequest
from tradewind.client.flows import ComponentStructure, FlowAnalysis, FlowRecord, FlowStatus, Pause, RegisteredFlow
from tradewind.client.handles import CycleHandle, FlowHandle
from tradewind.client.logs import LogLevel, LogLine, LogSource
from tradewind.client.memories import MemoryRecord
from tradewind.client.node_tasks import (
    ItemCounts,
    NodeError,
    NodeTaskRecord,
    NodeTaskStatus,
    NodeTaskWait,
    PastAttempt,
    Resumption,
    StatusCounts,
)
from tradewind.client.notifications import Notification, NotificationKind, Severity
from tradewind.client.plans import BindingLimit, ComponentWaves, FlowPlan, Placement, Wave
from tradewind.client.queues import QueueDepth, QueueStatistics, SystemConfig
from tradewind.client.reasons import Reason
from tradewind.client.reruns import Rerun, StopRecord
from tradewind.client.revisions import (
    ChangeKind,
    EdgeChange,
    FieldChange,
    FlowDiff,
    NodeChange,
    RevisedFlow,
    RevisionDefinition,
    RevisionDiff,
    RevisionRecord,
)
from tradewind.client.sub_flows import ParentNode, SubFlowCycle
from tradewind.client.sync import SyncClient
from tradewind.client.sync_handles import SyncBatchHandle, SyncCycleHandle, SyncFlowHandle, SyncTaskHandle
from tradewind.client.task_events import TaskEventKind, WatchedTask
from tradewind.client.triggers import PublishedEvent, TriggerCounts, TriggerFiring, TriggerRecord, TriggerStatus
from tradewind.client.workers import InputHandle, NodeType, OutputHandle, WorkerRecord, WorkerStatus

__all__ = [
    "DEFAULT_ADDRESS",
    "Aborted",
    "Addresses",
    "BackfillRecord",
    "BackfillStatus",
    "BatchFailed",
    "BatchHandle",
    "BatchProgress",
    "BatchRecord",
    "BatchStatus",
    "BindingLimit",
    "BulkAction",
    "BulkItem",
    "BulkJob",
    "BulkJobStatus",
    "CacheSettings",
    "CacheStatistics",
    "ChangeKind",
    "Client",
    "ComponentStructure",
    "ComponentWaves",
    "Conflict",
    "CycleDescription",
    "CycleFailed",
    "CycleHandle",
    "CycleOrigin",
    "CycleRecord",
    "CycleStatistics",
    "CycleStatus",
    "Definition",
    "Diagnosis",
    "DueTrigger",
    "DueTriggers",
    "EdgeChange",
    "Exhausted",
    "FieldChange",
    "Finding",
    "FiringOutcome",
    "FiringRecord",
    "FlowAnalysis",
    "FlowDescription",
    "FlowDiff",
    "FlowHandle",
    "FlowPlan",
    "FlowRecord",
    "FlowStatus",
    "InputHandle",
    "InvalidInput",
    "ItemCounts",
    "LogLevel",
    "LogLine",
    "LogSource",
    "MemoryRecord",
    "NewToken",
    "NodeChange",
    "NodeError",
    "NodeFailure",
    "NodeTaskRecord",
    "NodeTaskStatus",
    "NodeTaskWait",
    "NodeType",
    "NotFound",
    "Notification",
    "NotificationKind",
    "OutputHandle",
    "ParentNode",
    "PastAttempt",
    "Pause",
    "PermissionDenied",
    "Placement",
    "PublishedEvent",
    "QueueDepth",
    "QueueStatistics",
    "QuotaRecord",
    "Reason",
    "RegisteredFlow",
    "Rerun",
    "Resumption",
    "RevisedFlow",
    "RevisionDefinition",
    "RevisionDiff",
    "RevisionRecord",
    "Role",
    "RunRequest",
    "ServerFault",
    "SessionKind",
    "SessionRecord",
    "Severity",
    "Signal",
    "SignalStatus",
    "StatusCounts",
    "StopRecord",
    "SubFlowCycle",
    "SyncBatchHandle",
    "SyncClient",
    "SyncCycleHandle",
    "SyncFlowHandle",
    "SyncTaskHandle",
    "SystemConfig",
    "TaskEventKind",
    "TaskFailed",
    "TaskHandle",
    "TimedOut",
    "TradewindError",
    "TriggerCounts",
    "TriggerFiring",
    "TriggerRecord",
    "TriggerStatus",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "UserRecord",
    "Violation",
    "WatchedTask",
    "Wave",
    "WorkerRecord",
    "WorkerStatus",
    "WrongStatus",
]
