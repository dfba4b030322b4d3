"""Cycles as they run: live bars at a terminal, a line for each change in a pipe, or JSON lines."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing
from types import TracebackType

from tradewind.cli.descriptions import outcome_line
from tradewind.cli.screen import STYLES, Format, Screen
from tradewind.client import Client, CycleRecord, CycleStatistics, TradewindError
from tradewind.server.visible import visible

POLL_INTERVAL_S = 0.3
"""Seconds between checks of the nodes of running cycles."""
_BARS = 10


class Display(AbstractContextManager["Display"]):
    """Shows cycles, from when it is entered."""

    live = False
    """Whether it shows the progress of running cycles."""

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the display."""

    @abstractmethod
    def show(self, cycle: CycleRecord) -> None:
        """Show a cycle that has begun, changed or ended."""

    def advance(self, cycle: CycleRecord, statistics: CycleStatistics) -> None:
        """Show the progress of a running cycle, if `live`."""


def display_for(screen: Screen, output: Format) -> Display:
    """Return the display that suits the command's output."""
    if output is Format.JSON:
        return JsonLines(screen)
    return Bars(screen) if screen.shows_bars else Lines(screen)


async def watch_cycles(
    screen: Screen, client: Client, cycles: AsyncGenerator[CycleRecord, None], output: Format, *, max_ended: int = 0
) -> None:
    """Show cycles until `max_ended` have ended while watched (0: until the iteration ends)."""
    begun: dict[tuple[str, int], CycleRecord] = {}
    ended = 0
    with display_for(screen, output) as display:
        polling = asyncio.create_task(_poll(client, display, begun)) if display.live else None
        try:
            async with aclosing(cycles) as changes:
                async for cycle in changes:
                    key = (cycle.flow_id, cycle.cycle)
                    # The first record of a flow is its latest cycle, which may have ended long ago.
                    news = key in begun or not cycle.ended
                    begun[key] = cycle
                    display.show(cycle)
                    if cycle.ended:
                        del begun[key]
                        ended += news
                    if max_ended and ended >= max_ended:
                        return
        finally:
            if polling is not None:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)


async def _poll(client: Client, display: Display, begun: dict[tuple[str, int], CycleRecord]) -> None:
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        for key in list(begun)[:_BARS]:
            try:
                statistics = await client.cycle_statistics(*key)
            except TradewindError:
                # Those who watch the cycles learn of what lasts; the bars go on when it has passed.
                continue
            if key in begun:
                display.advance(begun[key], statistics)


class JsonLines(Display):
    """One JSON object per line."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, cycle: CycleRecord) -> None:
        self._screen.json_line(cycle)


class Lines(Display):
    """A line when a cycle begins and one when it ends."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._begun: set[tuple[str, int, int]] = set()

    def show(self, cycle: CycleRecord) -> None:
        key = (cycle.flow_id, cycle.cycle, cycle.run)
        if cycle.ended:
            self._begun.discard(key)
            self._screen.line(outcome_line(cycle), STYLES.get(cycle.status))
        elif key not in self._begun:
            self._begun.add(key)
            self._screen.line(outcome_line(cycle))


class Bars(Display):
    """A bar for each running cycle below the lines of those that have ended."""

    live = True

    def __init__(self, screen: Screen) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

        self._screen = screen
        self._bars: dict[tuple[str, int], TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            # No markup: a reason may contain text that rich would take for it.
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            TimeElapsedColumn(),
            console=screen.console,
            transient=True,
        )

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, cycle: CycleRecord) -> None:
        key = (cycle.flow_id, cycle.cycle)
        if cycle.ended:
            if key in self._bars:
                self._progress.remove_task(self._bars.pop(key))
            self._screen.line(outcome_line(cycle), STYLES.get(cycle.status))
        elif key not in self._bars:
            description = f"{cycle.flow_id} cycle {cycle.cycle}"
            note = visible(cycle.reason)
            self._bars[key] = self._progress.add_task(description, total=cycle.node_count or None, note=note)
        else:
            self._progress.update(self._bars[key], note=visible(cycle.reason))

    def advance(self, cycle: CycleRecord, statistics: CycleStatistics) -> None:
        bar = self._bars.get((cycle.flow_id, cycle.cycle))
        if bar is None:
            return
        open_nodes = statistics.registered_nodes + statistics.pending_nodes
        open_nodes += statistics.running_nodes + statistics.suspended_nodes
        note = visible(cycle.reason) or (
            f"{statistics.running_nodes} running" if statistics.running_nodes else "waiting"
        )
        self._progress.update(
            bar, completed=statistics.total_nodes - open_nodes, total=statistics.total_nodes or None, note=note
        )
