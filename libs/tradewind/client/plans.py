"""What registering a flow would do."""

from dataclasses import dataclass
from datetime import UTC, datetime

from tradewind.api.scheduler.v1 import plan_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.errors import Violation
from tradewind.client.flows import violations_from
from tradewind.client.revisions import FlowDiff, diff_from


@dataclass(frozen=True, slots=True)
class Wave:
    """Nodes of a component that can run side by side: their number, and the first 100 of them."""

    node_count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComponentWaves:
    """A component, in the order in which its nodes run."""

    component_id: str
    node_count: int
    waves: tuple[Wave, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The live workers that offer a node type and take work: their number, the first 20, and their slots.

    Slots are for all types of these workers together; `draining` more workers offer the type but take no work.
    """

    node_type: str
    node_count: int
    worker_count: int
    worker_ids: tuple[str, ...]
    slots: int
    free_slots: int
    draining: int


@dataclass(frozen=True, slots=True)
class BindingLimit:
    """A limit that will hold nodes back: its name, the node type or key it applies to, and the reason in words."""

    limit: str
    subject: str
    allowed: str
    wanted: str
    in_use: int
    message: str


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """What registering would do: whether it `changed` the flow, every fault, who would run it, and when.

    For a new flow, `standing_revision` and `diff` are None; so is a `diff` of more than 3 MiB, which a warning says.
    Registering with `etag` does what was planned, or is refused if somebody else changed the flow first.
    """

    flow_id: str
    changed: bool
    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    components: tuple[ComponentWaves, ...]
    placements: tuple[Placement, ...]
    limits: tuple[BindingLimit, ...]
    next_times: tuple[datetime, ...]
    standing_revision: int | None
    diff: FlowDiff | None
    etag: str
    begins_on: str = ""

    @property
    def valid(self) -> bool:
        """Whether RegisterFlow would accept it."""
        return not self.violations


def plan_from(flow_id: str, answer: pb.RegisterFlowResponse) -> FlowPlan:
    """Read a plan."""
    plan = answer.plan
    return FlowPlan(
        flow_id=flow_id,
        changed=answer.changed,
        violations=violations_from(plan.violations),
        warnings=violations_from(answer.warnings),
        components=tuple(
            ComponentWaves(
                component.component_id,
                component.node_count,
                tuple(Wave(wave.node_count, tuple(wave.nodes)) for wave in component.waves),
            )
            for component in plan.components
        ),
        placements=tuple(_placement(placement) for placement in plan.placements),
        limits=tuple(
            BindingLimit(each.limit, each.subject, each.allowed, each.wanted, each.in_use, each.message)
            for each in plan.limits
        ),
        next_times=tuple(planned.ToDatetime(tzinfo=UTC) for planned in plan.next_times),
        standing_revision=plan.standing_revision or None,
        diff=diff_from(plan.diff) if plan.HasField("diff") else None,
        etag=plan.etag,
        begins_on=plan.begins_on,
    )


def _placement(message: plan_pb2.Placement) -> Placement:
    return Placement(
        message.node_type,
        message.node_count,
        message.worker_count,
        tuple(message.worker_ids),
        message.slots,
        message.free_slots,
        message.draining,
    )
