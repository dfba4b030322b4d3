"""Following a log: the lines it has, then new ones."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress

from tradewind.client.errors import NotFound
from tradewind.client.logs import LogLine

_CYCLES = 5
"""The log of a flow is that of so many of its cycles, the newest."""
_LOGGED = 100
"""Of how many cycles lines are kept."""

Page = Callable[[str], Awaitable[tuple[list[LogLine], str]]]
"""Returns the lines at a page token and the token of the next page, "" if there is none."""


async def follow_logs(
    page: Page, ended: Callable[[], Awaitable[bool]], interval: float
) -> AsyncGenerator[LogLine, None]:
    """Yield every line of a cycle once, looking for more every `interval` seconds until it has `ended`."""
    token = ""
    yielded: set[LogLine] = set()
    while True:
        # Asked before the lines are read, so that these include all lines written before the end.
        is_last_poll = await ended()
        while True:
            lines, following = await page(token)
            for line in lines:
                if line not in yielded:
                    yield line
            # The last page grows and loses lines that are no longer kept, so it is read again; full pages are not.
            yielded = set(lines)
            if not following:
                break
            token, yielded = following, set()
        if is_last_poll:
            return
        await asyncio.sleep(interval)


async def follow_flow_logs(
    page: Page,
    newest: Callable[[], Awaitable[int]],
    lines_of: Callable[[int], AsyncIterator[LogLine]],
    interval: float,
) -> AsyncGenerator[LogLine, None]:
    """Yield every line of a flow's newest cycles once, then those of all later cycles, without end.

    `newest` returns the number of the flow's newest cycle, -1 for none. `lines_of` yields the lines of one cycle; it is
    asked for each cycle that has left the newest since they were read: many may have begun meanwhile.
    """
    token, before = "", -1
    yielded: dict[int, set[int]] = {}
    """The hashes of lines, by cycle."""

    def is_news(line: LogLine) -> bool:
        known = yielded.setdefault(line.cycle, set())
        count = len(known)
        known.add(hash(line))
        return len(known) > count

    while True:
        last = await newest()
        if last < before:
            # The flow was deleted and registered again, and numbers its cycles from 0 again.
            token, yielded = "", {}
        elif before >= 0:
            for cycle in range(max(before - _CYCLES, last - _LOGGED, -1) + 1, last - _CYCLES + 1):
                with suppress(NotFound):  # it has passed its retention
                    async for line in lines_of(cycle):
                        if is_news(line):
                            yield line
        before = last
        while True:
            lines, following = await page(token)
            for line in filter(is_news, lines):
                yield line
            if not following:
                break
            token = following
        for cycle in sorted(yielded)[: -2 * _CYCLES]:
            del yielded[cycle]
        await asyncio.sleep(interval)
