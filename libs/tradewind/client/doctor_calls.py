"""What a client asks the doctors of the services."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from tradewind.api.access.v1 import doctor_pb2 as of_access
from tradewind.api.node_task_manager.v1 import doctor_pb2 as of_node_tasks
from tradewind.api.registry.v1 import doctor_pb2 as of_registry
from tradewind.api.scheduler.v1 import doctor_pb2 as of_scheduler
from tradewind.api.trigger.v1 import doctor_pb2 as of_trigger
from tradewind.client.connection import Connection
from tradewind.client.errors import ServerFault
from tradewind.client.findings import Diagnosis, Finding


class DoctorCalls:
    """Broken invariants."""

    _connection: Connection

    async def run_doctor(self, *, mend: bool = False) -> Diagnosis:
        """Check the records of all services for broken invariants; with `mend`, repair what can be repaired.

        This includes the access service if there is one. A service that goes away is asked again from the beginning;
        what it had mended by then is not among the findings. Raises Unavailable when it stays away.
        """
        to = self._connection
        asked: dict[str, Awaitable[list[Any]]] = {
            "scheduler": _collect(to, to.scheduler.RunDoctor, of_scheduler.RunDoctorRequest(mend=mend)),
            "node_task_manager": _collect(
                to, to.node_task_manager.RunDoctor, of_node_tasks.RunDoctorRequest(mend=mend)
            ),
            "trigger": _collect(to, to.trigger.RunDoctor, of_trigger.RunDoctorRequest(mend=mend)),
            "registry": _collect(to, to.registry.RunDoctor, of_registry.RunDoctorRequest(mend=mend)),
        }
        if to.may_have_access_service:
            request = of_access.RunDoctorRequest(mend=mend)
            asked["access"] = _if_served(_collect(to, to.access.RunDoctor, request))
        findings: list[Finding] = []
        before: Counter[str] = Counter()
        examined = 0
        for service, service_answers in zip(asked, await asyncio.gather(*asked.values()), strict=True):
            for answer in service_answers:
                examined += answer.examined
                findings += [
                    Finding(service, each.check, each.subject, each.problem, each.mended) for each in answer.findings
                ]
            before.update(service_answers[-1].found_before if service_answers else {})
        return Diagnosis(tuple(findings), examined, dict(before))


async def _collect(to: Connection, method: Any, request: Any) -> list[Any]:
    async def once() -> list[Any]:
        return [answer async for answer in to.stream(method, request)]

    return await to.repeated(once)


async def _if_served(answers: Awaitable[list[Any]]) -> list[Any]:
    try:
        return await answers
    except ServerFault as error:
        if error.reason != "METHOD_UNKNOWN":
            raise
        # A stack at one address whose calls need no token has no access service.
        return []
