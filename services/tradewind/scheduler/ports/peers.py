"""Other services: what the scheduler asks of them, and how they fail."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.due import DueAnswer, DueFlow
from tradewind.scheduler.domain.flow_record import FlowStop, Pause
from tradewind.scheduler.domain.log_line import LogLine
from tradewind.scheduler.domain.node_types import NodeTypeCatalogue
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.domain.sub_flow import Event
from tradewind.scheduler.domain.submission import ComponentView, StopOrder, Submission, SubmitAnswer
from tradewind.server.faults import Unavailable


class PeerUnavailable(Unavailable):
    """Another service cannot be reached, or does not answer in time; trying again later may work.

    `answered` says that it did answer, but with an error: the request may be at fault.
    """

    def __init__(self, peer: str, detail: str, *, answered: bool = False) -> None:
        super().__init__("PEER_UNAVAILABLE", f"the {peer} cannot be reached at the moment", metadata={"peer": peer})
        self.detail = detail
        self.answered = answered


class PeerRefused(Exception):
    """Another service refuses a request as faulty; asking again will not help."""


class StaleSchedule(Exception):
    """The trigger service knows a higher schedule epoch of a flow."""


class PartitionStream(Protocol):
    """Delivers what concerns partitions that the receiver owns. Methods raise PeerUnavailable when it breaks."""

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        """Deliver items of these partitions from now on."""
        ...

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        """Stop delivering items of these partitions."""
        ...

    async def close(self) -> None:
        """Close the stream."""
        ...


class EventStream(PartitionStream, Protocol):
    """Events of the node task manager: of a partition, all from the first on that is not acknowledged."""

    async def receive(self) -> tuple[list[Event], list[int]]:
        """Wait for events; return them and the partitions that a higher epoch has taken over."""
        ...

    async def acknowledge(self, events: Iterable[Event]) -> None:
        """Confirm that these events, and all before them, are handled for good."""
        ...


class DueStream(PartitionStream, Protocol):
    """Delivers due triggers, and takes the answers to them."""

    async def receive(self) -> tuple[list[DueFlow], list[int], bool]:
        """Wait for due triggers.

        Return them, the partitions that a higher epoch has taken over, and whether somebody has begun to listen to ends
        of cycles.
        """
        ...

    async def answer(self, answers: Sequence[DueAnswer]) -> None:
        """Answer due triggers."""
        ...


class NodeTasks(Protocol):
    """The node task manager. Every method raises PeerUnavailable when it cannot be reached."""

    def events(self) -> EventStream:
        """Open the stream of events."""
        ...

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        """Hand over runs with at most 500 nodes in all, and the bodies of plans that it may not know.

        Raises PeerRefused when one of them is at fault.
        """
        ...

    async def stop(self, order: StopOrder) -> None:
        """Stop a run, even if it is not submitted yet; repeating the call does nothing."""
        ...

    async def release(self, state: ChainState, skips: Mapping[str, str], inputs_json: str) -> None:
        """Let withheld components of a run begin with these inputs, or skip them for the reason given.

        A component that is no longer withheld is left alone.
        """
        ...

    async def stop_node(self, state: ChainState, node_id: str, by: str, reason: str) -> NodeTask:
        """Stop a node of a run and return its node task as it is then, in the node task manager's own message."""
        ...

    async def notify_stopped(self, flow_id: str, user_id: str, stop: FlowStop) -> None:
        """Notify a user that a flow was stopped; repeated within 24 h, it does nothing."""
        ...

    async def notify_paused(self, flow_id: str, user_id: str, pause: Pause) -> None:
        """Notify a user that a flow paused itself after failed cycles; repeated within 24 h, it does nothing."""
        ...

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentView]:
        """Return the components of up to 500 runs as they stand; unknown ones are left out."""
        ...

    async def purge(self, flow_id: str, user_id: str, schedule_epoch: int) -> bool:
        """Remove the data of a flow, one bounded step per call; True when nothing is left.

        Once nothing is left, calls with this epoch, or an earlier one, spare a later flow of the name.
        """
        ...

    async def node_tasks(
        self,
        state: ChainState,
        *,
        outputs: bool = False,
        signals: bool = False,
        page_size: int = 1000,
        page_token: str = "",
    ) -> ListNodeTasksResponse:
        """Return a page of a run's node tasks in the node task manager's own message, which the scheduler passes on."""
        ...

    async def outputs(self, node_tasks: Sequence[tuple[str, str]]) -> list[Sequence[tuple[str, str]]]:
        """Return the outputs of node tasks (id, user), JSON text by handle, in order.

        Takes at most 1000 node tasks. The answer stops early when it would be too large, but covers at least the first.
        """
        ...

    async def node_logs(self, state: ChainState, after: str) -> tuple[list[LogLine], bool]:
        """Return lines that nodes wrote in a cycle, after line `after`, oldest first, and whether there are more."""
        ...


class Triggers(Protocol):
    """The trigger service. Every method raises PeerUnavailable when it cannot be reached."""

    def due(self) -> DueStream:
        """Open the stream of due triggers."""
        ...

    async def save(
        self, flow_id: str, *, user_id: str, schedule: ScheduleDefinition, first_ms: int, schedule_epoch: int
    ) -> None:
        """Make a user's flow due at `first_ms` first, then whenever its schedule plans it; or for its events.

        Raises StaleSchedule when a higher epoch is known.
        """
        ...

    async def epochs_of(self, flow_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the schedule epochs of the triggers of up to 1000 flows, by flow; none for one without a trigger."""
        ...

    async def remove(self, flow_id: str, schedule_epoch: int) -> None:
        """Remove a flow's trigger. Raises StaleSchedule when a higher epoch is known."""
        ...


class Caches(Protocol):
    """The caches that results of nodes may come from."""

    async def cache_names(self) -> Collection[str] | None:
        """Return the names of all caches, None when nobody could be asked."""
        ...


class NodeTypes(Protocol):
    """The catalogue of node types that live workers offer."""

    async def catalogue(self, node_types: Collection[str], *, hints: bool = False) -> NodeTypeCatalogue | None:
        """Return the declarations of those of these types that somebody offers, None when nobody could be asked.

        With `hints` the catalogue can also suggest which type was meant by one that nobody offers.
        """
        ...
