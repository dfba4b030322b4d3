"""The table of who may call what: the least role for each method. A method that is not listed is closed."""

from dataclasses import dataclass

from tradewind.server.access.roles import Role


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may call a method.

    Roles from `least` up may, and workers if `workers` is set. If it is `owned`, what a user names in its request must
    be theirs. A call that is `lasting` may go on for long after it was admitted, as a stream does, or a call that waits
    for an end; it ends as soon as its caller may no longer make it.
    """

    least: Role
    workers: bool = False
    owned: bool = False
    lasting: bool = False

    def admits(self, role: Role) -> bool:
        """Say whether a caller with this role may call."""
        return self.workers if role is Role.WORKER else role.rank >= self.least.rank

    def open_to(self) -> str:
        """Return the least role, for people to read."""
        return f"{self.least} or worker" if self.workers else str(self.least)


_READS = ("Get", "List", "Find", "Watch", "Describe", "Explain", "Count", "Analyze", "Diff", "WhoAmI", "Authorize")
_LASTING = frozenset(
    {
        *("StreamRuns", "StreamSubmissions", "ReceiveEvents", "ReceiveDue", "Work", "SubmitBatch", "RunDoctor"),
        *("RunFlow", "RunFlows", "RerunCycle", "GetCycle", "DeleteFlow"),
    }
)


def rule(method: str) -> Rule | None:
    """Return the rule of `/package.Service/Method`, None when the method is closed."""
    return _RULES.get(method)


def is_read(name: str) -> bool:
    """Say whether the method `name` changes nothing."""
    return name.startswith(_READS)


def methods() -> frozenset[str]:
    """Return the full names of the listed methods."""
    return frozenset(_RULES)


def counted_names() -> list[str]:
    """Return the names, without their services, of the methods whose calls can be limited: those open to users."""
    return sorted({method.rpartition("/")[2] for method, found in _RULES.items() if found.admits(Role.USER)})


def _rules(service: str, /, **names: str) -> dict[str, Rule]:
    found = {}
    for role_and_marks, names_of_role in names.items():
        least, *marks = role_and_marks.split("_")
        for name in names_of_role.split():
            found[f"/{service}/{name}"] = Rule(
                Role(least),
                workers="worker" in marks,
                owned="own" in marks,
                lasting=name in _LASTING or name.startswith("Watch"),
            )
    return found


# The name of each list gives the least role, followed by "own" if users may name only what is theirs, and by "worker"
# if workers may call too.
_RULES: dict[str, Rule] = {
    **_rules(
        "tradewind.api.scheduler.v1.SchedulerService",
        user="AnalyzeFlow ListFlows",
        user_own=(
            "RegisterFlow UpdateFlow ListRevisions GetRevision DiffRevisions RollBackFlow GetFlow StartFlow StopFlow "
            "PauseFlow ResumeFlow ListFirings BackfillFlow ListBackfills GetBackfill CancelBackfill ListNextExecutions "
            "DeleteFlow RunFlow RunFlows StreamRuns RerunCycle StopCycle StopComponent StopNode GetCycle ListCycles "
            "DescribeCycle WatchFlow ListLogs ExplainFlow ExplainNode"
        ),
        user_own_worker="GetMemory UpdateMemory",
        operator="StartBulkJob GetBulkJob ListBulkJobs CancelBulkJob RunDoctor",
    ),
    **_rules(
        "tradewind.api.node_task_manager.v1.NodeTaskManagerService",
        user_own=(
            "GetNodeTask ListNodeTasks TerminateNodeTask SignalNode ExplainNodeTask SubmitTask GetTask ListTasks "
            "CancelTask WatchTask SubmitBatch GetBatch ListBatches ListBatchResults CancelBatch DeleteBatch "
            "WatchBatch ListTaskLogs ListDeadLetters RedriveDeadLetters ListNotifications WatchNotifications "
            "MarkNotificationsRead"
        ),
        user="ListConnections",
        operator=(
            "ListNodeLogs GetNodeOutputs ListWorkerTasks GetQueueStats GetConfig UpdateConfig GetCacheStats ClearCache "
            "PublishNotifications RunDoctor"
        ),
        operator_worker="Work ClaimNodeTasks RenewLeases CompleteNodeTasks FailNodeTasks ReportNodeTasks",
        service=(
            "SubmitComponents StreamSubmissions StopComponent ReleaseComponents GetComponents PurgeFlow ReceiveEvents "
            "ListSubFlowWaits ReportSubFlows"
        ),
    ),
    **_rules(
        "tradewind.api.registry.v1.RegistryService",
        user="ListWorkers GetAvailableWorkers ListNodeTypes GetNodeType",
        user_worker="GetWorker",
        operator="DrainWorker RunDoctor",
        operator_worker="RegisterWorker Heartbeat DeregisterWorker",
    ),
    **_rules(
        "tradewind.api.trigger.v1.TriggerService",
        operator=(
            "SaveTrigger RemoveTrigger FindTrigger FindEpochs FindDue FindAllPending ReceiveDue PublishEvent "
            "CountListeners ListTriggers FireTrigger PauseTrigger ResumeTrigger ListFirings ListDeadTriggers "
            "RedriveTrigger CountTriggers RunDoctor"
        ),
    ),
    **_rules(
        "tradewind.api.access.v1.AccessService",
        user="CreateSession CreateToken ListSessions RevokeSession RevokeSessions GetUser ListQuotas",
        user_worker="WhoAmI RefreshSession",
        operator="ListUsers RunDoctor",
        admin="SetUser",
        service="Authorize AdmitCall ReserveCalls RefundCalls WatchChanges",
    ),
    "/grpc.channelz.v1.Channelz/GetChannel": Rule(Role.OPERATOR),
    "/grpc.channelz.v1.Channelz/GetServer": Rule(Role.OPERATOR),
    "/grpc.channelz.v1.Channelz/GetServerSockets": Rule(Role.OPERATOR),
    "/grpc.channelz.v1.Channelz/GetServers": Rule(Role.OPERATOR),
    "/grpc.channelz.v1.Channelz/GetSocket": Rule(Role.OPERATOR),
    "/grpc.channelz.v1.Channelz/GetSubchannel": Rule(Role.OPERATOR),
    "/grpc.channelz.v1.Channelz/GetTopChannels": Rule(Role.OPERATOR),
}

OPEN = ("/grpc.health.", "/grpc.reflection.", "/externalscaler.")
"""Services that anybody may call: a server's health, what it speaks, and how much waits for a pool of workers.

That number is all they show of anybody's work. KEDA asks for it and cannot send a token: the network, or mTLS, decides
who reaches it."""
