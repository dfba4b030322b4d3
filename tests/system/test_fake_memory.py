"""The memory that `run_node` gives a node answers as the scheduler's does."""

from collections.abc import Awaitable, Callable
from typing import Any

from tradewind.flow import Flow
from tradewind.testing import VirtualStack, run_node, simulate
from tradewind.worker import Context, MemoryFault, node

_BESIDE_VALUE = 2 + len("n") + 4 + 2
"""What counts towards the 64 KiB besides the characters of a text that is the only variable."""
_LARGEST = "x" * (64 * 1024 - _BESIDE_VALUE)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


STEPS: list[Callable[[Context], Awaitable[Any]]] = [
    lambda ctx: ctx.flow_memory.set("n", _LARGEST),
    lambda ctx: ctx.flow_memory.set("n", _LARGEST + "x"),
    lambda ctx: ctx.flow_memory.set("m", 1),
    lambda ctx: ctx.flow_memory.set("n", nested(499)),
    lambda ctx: ctx.flow_memory.set("n", nested(500)),
    lambda ctx: ctx.flow_memory.set("", 1),
    lambda ctx: ctx.flow_memory.set("a" * 129, 1),
    lambda ctx: ctx.flow_memory.set("a\nb", 1),
    lambda ctx: ctx.flow_memory.set("none", None),
    lambda ctx: ctx.flow_memory.get("none", "default"),
    lambda ctx: ctx.flow_memory.get("missing", "default"),
    lambda ctx: ctx.flow_memory.delete("missing"),
    lambda ctx: ctx.flow_memory.delete("n"),
    lambda ctx: ctx.flow_memory.update("count", lambda count: count + 1, 0),
    lambda ctx: ctx.flow_memory.update("once", lambda count: count + 1, 0, once=True),
    lambda ctx: ctx.flow_memory.update("once", lambda count: count + 1, 0, once=True),
    lambda ctx: ctx.flow_memory.all(),
    lambda ctx: ctx.cycle_memory.all(),
    lambda ctx: ctx.set_result("x" * (64 * 1024 - 2)),
    lambda ctx: ctx.set_result("x" * (64 * 1024 - 1)),
    lambda ctx: ctx.set_result(nested(500)),
    lambda ctx: ctx.set_result(nested(501)),
]


@node("remembers")
async def remembers(ctx: Context) -> list[Any]:
    """Return what each step returned, or why it was refused."""
    answers: list[Any] = []
    for step in STEPS:
        try:
            answers.append(await step(ctx))
        except MemoryFault as fault:
            answers.append(fault.reason)
    return answers


def test_run_node_keeps_and_refuses_variables_as_the_scheduler_does() -> None:
    async def main(stack: VirtualStack) -> tuple[Any, Any]:
        flow = Flow("kept", "1h")
        flow.node("a", remembers)
        await stack.client.register_flow(flow)
        outputs = await (await stack.client.run_flow("kept")).result(60)
        alone = await run_node(remembers)
        return outputs["a"]["output"], alone.output

    in_stack, alone = simulate(main, [remembers])
    assert alone == in_stack
    assert "TOO_LARGE" in in_stack
    assert "INVALID_INPUT" in in_stack
