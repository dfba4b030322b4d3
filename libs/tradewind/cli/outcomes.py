"""How a cycle ended, what the flow's sink nodes emitted, and the result that a node set."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import typer

from tradewind.cli.descriptions import outcome_line
from tradewind.cli.explain import open_node_lines, waiting_node_lines
from tradewind.cli.failures import FAILED, fail
from tradewind.cli.plain import to_json
from tradewind.cli.progress import watch_cycles
from tradewind.cli.screen import STYLES, Format, Screen
from tradewind.client import Client, CycleDescription, CycleFailed, CycleHandle, TradewindError

_DESCRIBE_TIMEOUT_S = 2.0
_NOTE_AFTER_S = 2.0
"""After how long it is first looked what a cycle waits for; after twice as long each further time."""
_NOTE_EVERY_S = 30.0
"""The longest that passes from look to look."""


@contextmanager
def noting_that_it_continues(screen: Screen, what: str, end: str) -> Iterator[None]:
    """On Ctrl-C, note that `what` was waited for continues, and which command would end it."""
    try:
        yield
    except asyncio.CancelledError:
        screen.notes([f"{what} continues; to end it: tradewind {end}"])
        raise


async def _described(client: Client, handle: CycleHandle) -> CycleDescription | None:
    """Return a description of the cycle, or None if there is none within 2 s."""
    try:
        async with asyncio.timeout(_DESCRIBE_TIMEOUT_S):
            return await client.describe_cycle(handle.flow_id, handle.cycle, handle.run, include_logs=False)
    except (TimeoutError, TradewindError):
        return None


@asynccontextmanager
async def _noting_waits(screen: Screen, client: Client, handle: CycleHandle) -> AsyncIterator[None]:
    """Note once which nodes wait, and for what, when the cycle has not ended after a while and some do."""

    async def note() -> None:
        lines: list[str] = []
        after = _NOTE_AFTER_S
        while not lines:
            await asyncio.sleep(after)
            after = min(2 * after, _NOTE_EVERY_S)
            described = await _described(client, handle)
            lines = waiting_node_lines(described) if described is not None else []
        screen.notes(line.strip() for line in lines)

    noting = asyncio.create_task(note())
    try:
        yield
    finally:
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)


async def wait_for_outcome(
    screen: Screen, client: Client, handle: CycleHandle, timeout: float | None, output: Format
) -> None:
    """Wait for a cycle to end and print its outcome.

    Raises typer.Exit unless it completes, and when it has not ended after `timeout` seconds.
    """
    name, end = f"cycle {handle.cycle} of {handle.flow_id}", f"cycle stop {handle.flow_id} {handle.cycle}"
    try:
        with noting_that_it_continues(screen, name, end):
            async with asyncio.timeout(timeout), _noting_waits(screen, client, handle):
                shown = output is Format.TEXT and screen.terminal and not (handle.record and handle.record.ended)
                if shown:
                    await watch_cycles(screen, client, handle.watch(), output)
                cycle = await handle.wait()
    except TimeoutError:
        message = f"{name} is still running after {timeout:g} s and continues"
        described = await _described(client, handle)
        raise fail("\n".join([message, *(open_node_lines(described) if described else ())])) from None
    failures: tuple[object, ...] = ()
    try:
        outputs = await handle.result()
    except CycleFailed as failure:
        outputs, failures = failure.outputs, failure.failures
    if output is Format.JSON:
        screen.json({"cycle": cycle, "outputs": outputs, "failures": failures})
    else:
        if not shown:
            screen.line(outcome_line(cycle), STYLES.get(cycle.status))
        for each in failures:
            screen.line(f"  {each}", "red")
        for node_id, handles in outputs.items():
            for output_handle, value in handles.items():
                screen.line(f"{node_id}.{output_handle} = {to_json(value)}")
        if cycle.result_json:
            screen.line(f"result = {to_json(cycle.given)}")
    if not cycle.succeeded:
        raise typer.Exit(FAILED)
