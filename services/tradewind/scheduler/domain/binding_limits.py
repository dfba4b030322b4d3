"""Finds the limits that will hold back nodes of a flow."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.node_definition import NodeDefinition
from tradewind.scheduler.domain.placement import Placement
from tradewind.scheduler.domain.structure import FlowStructure
from tradewind.scheduler.domain.system_limits import SystemLimits
from tradewind.server.built_in import BUILT_IN
from tradewind.server.durations import rounded_up
from tradewind.server.quoting import quoted
from tradewind.server.rates import Rate


@dataclass(frozen=True, slots=True)
class BindingLimit:
    """A limit; `subject` is the node type or key that it is for, if any; `allowed` and `wanted` have the same unit."""

    limit: str
    subject: str
    allowed: str
    wanted: str
    in_use: int
    message: str


class Demand:
    """The nodes that a flow could run at once: the sum over its components of each component's widest wave.

    A mapped node counts as its `max_parallel`. A node of a built-in type does not count: it holds nothing.
    """

    def __init__(self, definition: FlowDefinition, structure: FlowStructure) -> None:
        self._nodes = {node.node_id: node for node in definition.nodes if node.node_type not in BUILT_IN}
        self._structure = structure
        self.total = self.widest(lambda node: "")[""]

    def widest(self, key_of: Callable[[NodeDefinition], str | None]) -> Counter[str]:
        """Return how many nodes of each key are ready at once; those without a key are left out."""
        found: Counter[str] = Counter()
        for component in self._structure.components:
            widest: Counter[str] = Counter()
            for wave in component.waves:
                # `|=` would look at all keys so far, for each wave: a chain of 10 000 types has as many of both.
                for key, count in self._counts(wave, key_of).items():
                    widest[key] = max(widest[key], count)
            found.update(widest)
        return found

    def _counts(self, node_ids: Iterable[str], key_of: Callable[[NodeDefinition], str | None]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for node in map(self._nodes.get, node_ids):
            if node is not None and (key := key_of(node)) is not None:
                counts[key] += node.fan_out.max_parallel if node.fan_out else 1
        return counts


def binding_limits(
    definition: FlowDefinition,
    demand: Demand,
    limits: SystemLimits,
    offers: Iterable[Placement],
    planned: Sequence[int],
) -> tuple[BindingLimit, ...]:
    """Return the limits that bind, the flow's own before those of the system.

    `offers` are the placements of the flow's nodes. `planned` are its next planned times (ms), which say how often a
    cycle begins.
    """
    return (
        *_flow_limits(definition, demand),
        *_worker_limits(demand, offers),
        *_system_limits(demand, limits),
        *_rate_limits(definition, limits, planned),
    )


def _flow_limits(definition: FlowDefinition, demand: Demand) -> Iterator[BindingLimit]:
    yield from _count_limit("max_running", "", definition.max_running, demand.total)
    most = {node.concurrency.key: node.concurrency.most for node in definition.nodes if node.concurrency}
    wanted = demand.widest(lambda node: node.concurrency.key if node.concurrency else None)
    for key, limit in most.items():
        yield from _count_limit("concurrency", key, limit, wanted[key], f"nodes with key {quoted(key)}")


def _worker_limits(demand: Demand, offers: Iterable[Placement]) -> Iterator[BindingLimit]:
    wanted = demand.widest(lambda node: node.node_type)
    for offer in offers:
        if 0 < offer.slots < wanted[offer.node_type]:
            count = len(offer.worker_ids)
            yield BindingLimit(
                "worker_slots",
                offer.node_type,
                str(offer.slots),
                str(wanted[offer.node_type]),
                offer.slots - offer.free_slots,
                f"{wanted[offer.node_type]} nodes of type {quoted(offer.node_type)} can be ready at once, but the "
                f"{f'{count} live workers have' if count > 1 else 'only live worker has'} {offer.slots} slots for them",
            )


def _system_limits(demand: Demand, limits: SystemLimits) -> Iterator[BindingLimit]:
    total, running = demand.total, limits.running
    yield from _count_limit("config.max_running", "", limits.max_running, total, in_use=running)
    yield from _count_limit("config.max_running_per_user", "", limits.max_running_per_user, total, in_use=running)
    yield from _count_limit("config.max_running_per_flow", "", limits.max_running_per_flow, total)
    for node_type, wanted in demand.widest(lambda node: node.node_type).items():
        most = limits.max_running_per_node_type.get(node_type, 0)
        noun = f"nodes of type {quoted(node_type)}"
        yield from _count_limit("config.max_running_per_node_type", node_type, most, wanted, noun)


def _count_limit(
    limit: str, subject: str, most: int, wanted: int, noun: str = "nodes", in_use: int = 0
) -> Iterator[BindingLimit]:
    if most and wanted + in_use > most:
        message = f"{wanted} {noun} can be ready at once, but at most {most} may run"
        message += f", and {in_use} of this user's are running now" if in_use else ""
        yield BindingLimit(limit, subject, str(most), str(wanted), in_use, message)


def _rate_limits(definition: FlowDefinition, limits: SystemLimits, planned: Sequence[int]) -> Iterator[BindingLimit]:
    of_types = Counter(node.node_type for node in definition.nodes)
    for node_type, cost in of_types.items():
        if node_type in limits.rates:
            limit = Rate.parse(limits.rates[node_type])
            yield from _rate_limit(
                "config.rates", node_type, limit, cost, planned, f"nodes of type {quoted(node_type)}"
            )
    costs: Counter[str] = Counter()
    rates: dict[str, Rate] = {}
    for node in definition.nodes:
        if node.rate is not None:
            costs[node.rate.key] += node.rate.cost
            rates[node.rate.key] = Rate.parse(node.rate.limit)
    for key, rate in rates.items():
        yield from _rate_limit("rate", key, rate, costs[key], planned, f"nodes with key {quoted(key)}")


def _rate_limit(
    limit: str, subject: str, rate: Rate, cost: int, planned: Sequence[int], noun: str
) -> Iterator[BindingLimit]:
    unit = str(rate).partition("/")[2]
    if len(planned) > 1:
        asked = cost * rate.period_ms * (len(planned) - 1) / (planned[-1] - planned[0])
        if asked > rate.count:
            # Four digits, without an exponent.
            demand = f"{Decimal(f'{asked:.4g}'):f}/{unit}"
            message = f"the schedule starts {demand} {noun}, but only {rate} may begin, so cycles will fall behind"
            yield BindingLimit(limit, subject, str(rate), demand, 0, message)
            return
    if cost > rate.count:
        seconds = (cost - rate.count) * rate.period_ms / rate.count / 1000
        message = (
            f"a cycle starts {cost} {noun}, but only {rate} may begin, so its last one begins "
            f"{rounded_up(seconds)} after the first"
        )
        yield BindingLimit(limit, subject, str(rate), str(cost), 0, message)
