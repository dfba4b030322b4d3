"""The node types of a life: how long they take, whether they fail and what they emit is random."""

import asyncio
import random
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

from tradewind.worker import Context, Emit, Gather, Node, Wait, node


class Nodes:
    """The node types; `attempts` counts how often each attempt ran."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.attempts: Counter[tuple[str, int, int]] = Counter()
        self.counted: defaultdict[str, set[str]] = defaultdict(set)
        """The idempotency keys under which each flow's variable "count" may have been raised."""

        self.secret = f"secret-{draw.getrandbits(64)}"
        """What nodes are given by the workers, and must not be told by anybody."""

    def repeated(self) -> list[str]:
        """Return a sentence for each attempt that ran more than once."""
        return [f"attempt {attempt} ran {times} times" for attempt, times in self.attempts.items() if times > 1]

    async def _attempt(self, ctx: Context, *, fails: float) -> None:
        self.attempts[ctx.idempotency_key, ctx.cycle, ctx.attempt] += 1
        if self._draw.random() < 0.6:
            await asyncio.sleep(3 * self._draw.random())
        if self._draw.random() < fails:
            raise ValueError("bad luck")

    def all(self) -> list[Node[..., Any]]:
        """Return the node types; `after` is where earlier nodes are joined."""

        @node("work")
        async def work(ctx: Context, after: Any = None, outcome: Any = None) -> int:
            await self._attempt(ctx, fails=0.15)
            return 1

        @node("eager", eager=True)
        async def eager(after: Any = None) -> int:
            if self._draw.random() < 0.1:
                raise ValueError("bad luck")
            return 1

        @node("items")
        async def items(ctx: Context, after: Any = None) -> list[int]:
            await self._attempt(ctx, fails=0.02)
            return list(range(self._draw.choice((0, 1, 3, 7))))

        @node("each")
        async def each(ctx: Context, item: Any = None) -> int:
            await self._attempt(ctx, fails=0.15)
            return 1

        @node("large")
        async def large(ctx: Context, after: Any = None) -> str:
            await self._attempt(ctx, fails=0.02)
            return "x" * 9000

        @node("long")
        async def long(ctx: Context, after: Any = None, outcome: Any = None) -> int:
            await self._attempt(ctx, fails=0)
            await asyncio.sleep(60 + 100 * self._draw.random())
            return 1

        @node("signalled")
        async def signalled(ctx: Context, after: Any = None) -> int | Wait:
            await self._attempt(ctx, fails=0.05)
            if ctx.resumed is None:
                return Wait("go", until=timedelta(seconds=self._draw.choice((2, 20, 60))))
            return 1

        @node("count")
        async def count(ctx: Context, after: Any = None) -> int:
            await self._attempt(ctx, fails=0.1)
            self.counted[ctx.flow_id].add(ctx.idempotency_key)
            return int(await ctx.flow_memory.update("count", lambda counted: counted + 1, 0, once=True))

        @node("secretive")
        async def secretive(ctx: Context, key: str, after: Any = None) -> str:
            await self._attempt(ctx, fails=0.05)
            assert key == self.secret
            if self._draw.random() < 0.1:
                raise ValueError(f"bad luck with {key}")
            ctx.log.info(f"using {key}")
            return key if self._draw.random() < 0.1 else "done"

        @node("join")
        async def join(ctx: Context, after: Gather[Any] = ()) -> int:  # type: ignore[assignment]
            await self._attempt(ctx, fails=0.1)
            return len(after)

        @node("branch", outputs=["left", "right"])
        async def branch(ctx: Context, after: Any = None) -> Emit:
            await self._attempt(ctx, fails=0.02)
            return Emit(left=1) if self._draw.random() < 0.5 else Emit(right=2)

        return [work, eager, items, each, large, long, signalled, count, secretive, join, branch]
