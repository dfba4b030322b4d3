"""Fakes of the other services, which know very little."""

from collections.abc import AsyncIterator

import grpc
from google.protobuf import duration_pb2, timestamp_pb2

from tests.unit.client.fake_scheduler import START
from tests.unit.client.refusal import AWAY, Context, Refusal
from tradewind.api.access.v1 import access_service_pb2, access_service_pb2_grpc
from tradewind.api.node_task_manager.v1 import (
    batch_pb2,
    cache_pb2,
    config_pb2,
    node_task_manager_service_pb2_grpc,
    node_task_pb2,
    notification_pb2,
    queue_pb2,
    waiting_pb2,
)
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as ntm
from tradewind.api.registry.v1 import registry_service_pb2 as reg
from tradewind.api.registry.v1 import registry_service_pb2_grpc, worker_pb2
from tradewind.api.trigger.v1 import trigger_pb2, trigger_service_pb2, trigger_service_pb2_grpc


class FakeRegistry(registry_service_pb2_grpc.RegistryServiceServicer):
    """Knows two workers, one of them offline, and one node type."""

    def __init__(self) -> None:
        self.workers = [
            worker_pb2.Worker(
                worker_id=f"w{number}",
                node_types=["feed", "model"],
                capacity=10,
                running=number,
                status=worker_pb2.WORKER_STATUS_ACTIVE if number < 2 else worker_pb2.WORKER_STATUS_OFFLINE,
                last_heartbeat=timestamp_pb2.Timestamp(seconds=START),
                host="here",
                pid=number,
            )
            for number in (1, 2)
        ]

    async def ListWorkers(self, request: reg.ListWorkersRequest, context: Context) -> reg.ListWorkersResponse:
        if request.page_token:
            return reg.ListWorkersResponse(workers=self.workers[1:])
        more = request.include_offline
        return reg.ListWorkersResponse(workers=self.workers[:1], next_page_token="w1" if more else "")

    async def GetWorker(self, request: reg.GetWorkerRequest, context: Context) -> reg.GetWorkerResponse:
        for worker in self.workers:
            if worker.worker_id == request.worker_id:
                return reg.GetWorkerResponse(worker=worker)
        message = f'no worker "{request.worker_id}"'
        await Refusal(grpc.StatusCode.NOT_FOUND, "WORKER_NOT_FOUND", message).abort_call(context)
        raise AssertionError("aborted")

    async def ListNodeTypes(self, request: reg.ListNodeTypesRequest, context: Context) -> reg.ListNodeTypesResponse:
        answer = reg.ListNodeTypesResponse()
        feed = answer.node_types.add(type="feed", description="Prices.", worker_ids=["w1"])
        feed.inputs.add(name="symbols", schema_json='{"type": "array"}', required=True, gather=True)
        feed.outputs.add(name="prices")
        return answer


class FakeNodeTaskManager(node_task_manager_service_pb2_grpc.NodeTaskManagerServiceServicer):
    """Knows one node task, `momentum:0:0:model`; the answers to its first signal and first notification are lost."""

    def __init__(self) -> None:
        self.config = config_pb2.SystemConfig(
            max_running=5,
            user_weights={"ann": 2.0},
            enable_cache=True,
            cache_ttl=duration_pb2.Duration(seconds=3600),
            caches={"screening": cache_pb2.CacheSettings(max_entries=10)},
        )
        first = timestamp_pb2.Timestamp(seconds=START)
        self.queues = [
            queue_pb2.QueueDepth(node_type="model", user_id="ann", queued=3, running=2, first_ready_at=first)
        ]
        self.task = node_task_pb2.NodeTask(
            node_task_id="momentum:0:0:model",
            flow_id="momentum",
            node_id="model",
            node_type="model",
            status=node_task_pb2.NODE_TASK_STATUS_RUNNING,
            worker_id="w1",
            attempt=2,
            progress=40,
            message="fitting",
            config_json='{"window": 20}',
        )
        self.signals: list[waiting_pb2.SignalNodeRequest] = []
        self.notifications: list[notification_pb2.NotificationDraft] = []

    async def SignalNode(
        self, request: waiting_pb2.SignalNodeRequest, context: Context
    ) -> waiting_pb2.SignalNodeResponse:
        self.signals.append(request)
        if len(self.signals) == 1:
            await AWAY.abort_call(context)
        return waiting_pb2.SignalNodeResponse(node_task=self.task)

    async def PublishNotifications(
        self, request: notification_pb2.PublishNotificationsRequest, context: Context
    ) -> notification_pb2.PublishNotificationsResponse:
        (draft,) = request.notifications
        kept = not draft.key or draft.key not in [each.key for each in self.notifications]
        if kept:
            self.notifications.append(draft)
            if len(self.notifications) == 1:
                await AWAY.abort_call(context)
        return notification_pb2.PublishNotificationsResponse(kept=[kept])

    async def _found(self, node_task_id: str, context: Context) -> None:
        if node_task_id != self.task.node_task_id:
            message = f'no node task "{node_task_id}"'
            await Refusal(grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND", message).abort_call(context)

    async def GetNodeTask(self, request: ntm.GetNodeTaskRequest, context: Context) -> ntm.GetNodeTaskResponse:
        await self._found(request.node_task_id, context)
        return ntm.GetNodeTaskResponse(node_task=self.task)

    async def WatchTask(
        self, request: batch_pb2.WatchTaskRequest, context: Context
    ) -> AsyncIterator[batch_pb2.WatchTaskResponse]:
        yield batch_pb2.WatchTaskResponse(task=self.task)

    async def GetConfig(self, request: config_pb2.GetConfigRequest, context: Context) -> config_pb2.GetConfigResponse:
        return config_pb2.GetConfigResponse(config=self.config, etag="v1")

    async def UpdateConfig(
        self, request: config_pb2.UpdateConfigRequest, context: Context
    ) -> config_pb2.UpdateConfigResponse:
        for name in request.update_mask.paths:
            self.config.ClearField(name)  # type: ignore[arg-type]
        self.config.MergeFrom(request.config)
        return config_pb2.UpdateConfigResponse(config=self.config, etag="v2")

    async def GetQueueStats(
        self, request: queue_pb2.GetQueueStatsRequest, context: Context
    ) -> queue_pb2.GetQueueStatsResponse:
        return queue_pb2.GetQueueStatsResponse(
            queues=self.queues,
            queued=3,
            running=2,
            first_ready_at=self.queues[0].first_ready_at,
            completed=7,
            failed=1,
            failed_by_code={"TIMEOUT": 1},
            cleaned_runs=4,
            cleaned_node_tasks=9,
            cleaned_entries=2,
        )

    async def TerminateNodeTask(
        self, request: ntm.TerminateNodeTaskRequest, context: Context
    ) -> ntm.TerminateNodeTaskResponse:
        await self._found(request.node_task_id, context)
        self.task.stop.reason = request.reason
        self.task.stop.by = request.by
        return ntm.TerminateNodeTaskResponse(node_task=self.task)


class FakeAccess(access_service_pb2_grpc.AccessServiceServicer):
    """Makes tokens, but its answers never arrive."""

    def __init__(self) -> None:
        self.made = 0

    async def CreateSession(
        self, request: access_service_pb2.CreateSessionRequest, context: Context
    ) -> access_service_pb2.CreateSessionResponse:
        self.made += 1
        await AWAY.abort_call(context)

    async def CreateToken(
        self, request: access_service_pb2.CreateTokenRequest, context: Context
    ) -> access_service_pb2.CreateTokenResponse:
        self.made += 1
        await AWAY.abort_call(context)


class FakeTrigger(trigger_service_pb2_grpc.TriggerServiceServicer):
    """Keeps what is saved, and delivers triggers; its first answer to a request to fire one is lost."""

    def __init__(self) -> None:
        self.fired: set[str] = set()
        self.saved: list[trigger_pb2.Trigger] = []

    async def SaveTrigger(
        self, request: trigger_service_pb2.SaveTriggerRequest, context: Context
    ) -> trigger_service_pb2.SaveTriggerResponse:
        self.saved.append(request.trigger)
        return trigger_service_pb2.SaveTriggerResponse(trigger=request.trigger)

    async def ListTriggers(
        self, request: trigger_service_pb2.ListTriggersRequest, context: Context
    ) -> trigger_service_pb2.ListTriggersResponse:
        return trigger_service_pb2.ListTriggersResponse(triggers=self.saved)

    async def FireTrigger(
        self, request: trigger_service_pb2.FireTriggerRequest, context: Context
    ) -> trigger_service_pb2.FireTriggerResponse:
        if request.request_id not in self.fired:
            self.fired.add(request.request_id)
            await AWAY.abort_call(context)
        return trigger_service_pb2.FireTriggerResponse(fired=False)
