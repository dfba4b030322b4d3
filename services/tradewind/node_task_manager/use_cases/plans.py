"""Plans in memory: they are immutable, so a plan is kept once it was seen."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from weakref import WeakValueDictionary

from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.settings import PlanStore

_NODE_BYTES = 1000
_EDGE_BYTES = 300
_AT_ONCE = 50


class PlanCache:
    """The most recently used plans, about `size` bytes of memory in all."""

    def __init__(self, size: int = 256 * 1024 * 1024) -> None:
        self._plans: OrderedDict[str, tuple[Plan, int]] = OrderedDict()
        self._most = size
        self._size = 0
        self._loading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, digest: str) -> Plan | None:
        """Return a plan, None when it is not in memory."""
        found = self._plans.get(digest)
        if found is None:
            return None
        self._plans.move_to_end(digest)
        return found[0]

    def put(self, plan: Plan) -> None:
        """Keep a plan."""
        if plan.digest in self._plans:
            return
        size = len(plan.edges) * _EDGE_BYTES + sum(_NODE_BYTES + len(node.config_json) for node in plan.nodes)
        self._plans[plan.digest] = (plan, size)
        self._size += size
        while self._size > self._most and len(self._plans) > 1:
            _, (_, dropped) = self._plans.popitem(last=False)
            self._size -= dropped

    async def fetch(self, store: PlanStore, digests: Iterable[str]) -> dict[str, Plan]:
        """Return plans by digest, loading those that are not in memory; unknown ones are left out."""
        found = {digest: self.get(digest) for digest in digests}
        missing = [digest for digest, plan in found.items() if plan is None]
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            found.update(zip(some, await asyncio.gather(*(self._load(store, each) for each in some)), strict=True))
        return {digest: plan for digest, plan in found.items() if plan is not None}

    async def require(self, store: PlanStore, digest: str) -> Plan:
        """Return a plan, loading it unless it is in memory. Raises KeyError when it is unknown."""
        return (await self.fetch(store, [digest]))[digest]

    async def _load(self, store: PlanStore, digest: str) -> Plan | None:
        """Load a plan, unless another caller that wants it too has just loaded it."""
        async with self._loading.setdefault(digest, asyncio.Lock()):
            plan = self.get(digest) or await store.load(digest)
            if plan is not None:
                self.put(plan)
            return plan
