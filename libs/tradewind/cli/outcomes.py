"""How a cycle ended, and what the flow's sink nodes emitted."""

import asyncio

from tradewind.cli.descriptions import outcome_line
from tradewind.cli.explain import open_node_lines
from tradewind.cli.failures import fail
from tradewind.cli.plain import to_json
from tradewind.cli.progress import watch_cycles
from tradewind.cli.screen import STYLES, Format, Screen
from tradewind.client import Client, CycleFailed, CycleHandle, TradewindError

_LOOK_S = 2.0


async def _open_nodes(client: Client, handle: CycleHandle) -> list[str]:
    """Return what the open nodes wait for, or nothing if that is not known within 2 s."""
    try:
        async with asyncio.timeout(_LOOK_S):
            described = await client.describe_cycle(handle.flow_id, handle.cycle, handle.run, include_logs=False)
    except (TimeoutError, TradewindError):
        return []
    return open_node_lines(described)


async def wait_for_outcome(
    screen: Screen, client: Client, handle: CycleHandle, timeout: float | None, output: Format
) -> bool:
    """Wait for a cycle to end, print its outcome, and return whether it completed.

    Raises typer.Exit when it has not ended after `timeout` seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            if output is Format.TEXT and screen.terminal and not (handle.record and handle.record.ended):
                await watch_cycles(screen, client, handle.watch(), output)
                shown = True
            else:
                shown = False
            cycle = await handle.wait()
    except TimeoutError:
        message = f"cycle {handle.cycle} of {handle.flow_id} is still running after {timeout:g} s and continues"
        raise fail("\n".join([message, *await _open_nodes(client, handle)])) from None
    failures: tuple[object, ...] = ()
    try:
        outputs = await handle.result()
    except CycleFailed as failure:
        outputs, failures = failure.outputs, failure.failures
    if output is Format.JSON:
        screen.json({"cycle": cycle, "outputs": outputs, "failures": failures})
        return cycle.succeeded
    if not shown:
        screen.line(outcome_line(cycle), STYLES.get(cycle.status))
    for each in failures:
        screen.line(f"  {each}", "red")
    for node_id, handles in outputs.items():
        for name, value in handles.items():
            screen.line(f"{node_id}.{name} = {to_json(value)}")
    return cycle.succeeded
