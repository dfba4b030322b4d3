"""Plans in memory: they are immutable, so a plan is kept once it was seen."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from weakref import WeakValueDictionary

from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.plans import PART, PlanStore

_NODE_BYTES = 1000
_EDGE_BYTES = 300
_AT_ONCE = 50


class PlanCache:
    """The most recently used plans, and parts of plans, about `size` bytes of memory in all."""

    def __init__(self, size: int = 256 * 1024 * 1024) -> None:
        self._plans: OrderedDict[str | tuple[str, int], tuple[Plan, int]] = OrderedDict()
        self._most = size
        self._size = 0
        self._loading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, digest: str, place: int | None = None) -> Plan | None:
        """Return a plan, or the part of it around a `place`; None when neither is in memory."""
        key: str | tuple[str, int] = digest
        found = self._plans.get(key)
        if found is None and place is not None:
            key = (digest, place // PART)
            found = self._plans.get(key)
        if found is None:
            return None
        self._plans.move_to_end(key)
        return found[0]

    def put(self, plan: Plan) -> None:
        """Keep a plan, or a part of one."""
        key = plan.digest if plan.first is None else (plan.digest, plan.first // PART)
        if key in self._plans:
            return
        size = len(plan.edges) * _EDGE_BYTES + sum(_NODE_BYTES + len(node.config_json) for node in plan.nodes)
        self._plans[key] = (plan, size)
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

    async def find(self, store: PlanStore, digest: str, place: int | None = None) -> Plan | None:
        """Return a plan, of a large one without edges perhaps only the part around `place`; load what is not in memory.

        None when it is unknown.
        """
        return self.get(digest, place) or await self._load(store, digest, place)

    async def require(self, store: PlanStore, digest: str, place: int | None = None) -> Plan:
        """Return what `find` returns. Raises KeyError when it is unknown."""
        plan = await self.find(store, digest, place)
        if plan is None:
            raise KeyError(digest)
        return plan

    async def _load(self, store: PlanStore, digest: str, place: int | None = None) -> Plan | None:
        """Load a plan, unless another caller that wants it too has just loaded it."""
        async with self._loading.setdefault(digest, asyncio.Lock()):
            plan = self.get(digest, place) or await store.load(digest, place)
            if plan is not None:
                self.put(plan)
            return plan
