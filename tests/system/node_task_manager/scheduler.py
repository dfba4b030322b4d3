"""The scheduler's side of these tests: it submits chains, follows their events, and checks how they ended."""

import asyncio
from types import TracebackType
from typing import Any, Self

import grpc

from tests.system.node_task_manager.stack import PATIENCE_S, retry_until_answered
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.server.channels import open_channel

LENGTH = 10
STEPS = ("step", "eager_step")
_ACCEPTED = (component_pb2.SUBMIT_OUTCOME_ACCEPTED, component_pb2.SUBMIT_OUTCOME_DUPLICATE)


def chain(seconds: float, node_type: str = "step") -> component_pb2.Plan:
    """Return a plan of ten steps in sequence, each taking `seconds`."""
    return component_pb2.Plan(
        digest=f"chain-{node_type}-{seconds}",
        nodes=[
            component_pb2.PlanNode(node_id=f"n{at}", node_type=node_type, config_json=f'{{"seconds":{seconds}}}')
            for at in range(LENGTH)
        ],
        edges=[
            component_pb2.PlanEdge(source=at, source_handle="output", target=at + 1, target_handle="value")
            for at in range(LENGTH - 1)
        ],
    )


def single(node_type: str, config: str) -> component_pb2.Plan:
    """Return a plan of one node, `n0`."""
    node = component_pb2.PlanNode(node_id="n0", node_type=node_type, config_json=config)
    return component_pb2.Plan(digest=f"{node_type}-{hash(config) % 10**9}", nodes=[node])


class Scheduler:
    """Submits one component per flow and receives their end events; survives outages of the node task manager."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self.stub = NodeTaskManagerServiceStub(self._channel)
        self.finished: dict[str, component_pb2.Component] = {}
        """The components in the events, by flow."""
        self._epoch = 0
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._following is not None
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._channel.close()

    async def submit(self, plan: component_pb2.Plan, *flows: str) -> None:
        """Submit a run for each flow, repeatedly until all are accepted."""
        part = component_pb2.ComponentSubmission(component_id="0", plan_digest=plan.digest)
        runs = [
            component_pb2.RunSubmission(flow_id=flow, run_id="r0", user_id="default", components=[part])
            for flow in flows
        ]
        request = pb2.SubmitComponentsRequest(runs=runs, plans=[plan])
        answer = await retry_until_answered(lambda: self.stub.SubmitComponents(request, timeout=5))
        assert all(result.outcome in _ACCEPTED for result in answer.results), answer

    async def wait_until_finished(self, *flows: str, nodes: int = LENGTH) -> None:
        """Wait until each flow has ended with all its nodes completed; compare the events with the records."""
        missing = set(flows)

        def received_all() -> bool:
            missing.difference_update(self.finished)
            return not missing

        await until(received_all, f"{len(flows)} flows have finished", timeout=PATIENCE_S)
        assert {self.finished[flow].counts.completed for flow in flows} == {nodes}
        names = [pb2.RunReference(flow_id=flow, user_id="default") for flow in flows]
        found = await retry_until_answered(
            lambda: self.stub.GetComponents(pb2.GetComponentsRequest(runs=names), timeout=5)
        )
        assert {each.status for each in found.components} == {component_pb2.COMPONENT_STATUS_FINISHED}

    async def node(self, flow: str, node_id: str = "n0") -> node_task_pb2.NodeTask:
        """Return a node task with its outputs."""
        request = pb2.GetNodeTaskRequest(node_task_id=f"{flow}:0:0:{node_id}", user_id="default", include_outputs=True)
        answer: pb2.GetNodeTaskResponse = await retry_until_answered(lambda: self.stub.GetNodeTask(request, timeout=5))
        return answer.node_task

    async def output(self, flow: str, node_id: str = "n0") -> str:
        """Return what a node emitted."""
        (output,) = (await self.node(flow, node_id)).outputs
        return output.value_json

    async def _follow(self) -> None:
        while True:
            try:
                await self._receive()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await asyncio.sleep(0.05)

    async def _receive(self) -> None:
        self._epoch += 1
        call: Any = self.stub.ReceiveEvents()
        try:
            everything = [pb2.EventSubscription(partition=at, epoch=self._epoch) for at in range(16)]
            await call.write(pb2.ReceiveEventsRequest(subscribe=everything))
            async for response in call:
                for event in response.events:
                    component = event.component_finished.component
                    self.finished[component.flow_id] = component
                acks = [
                    pb2.EventAck(partition=event.partition, shard=event.shard, event_id=event.event_id)
                    for event in response.events
                ]
                await call.write(pb2.ReceiveEventsRequest(acks=acks))
        finally:
            call.cancel()
