"""Following a log: what is there, then what comes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from tradewind.client.logs import LogLine

Page = Callable[[str], Awaitable[tuple[list[LogLine], str]]]
"""Returns the lines behind a page token and the token of the page after, "" when there is none."""


async def follow_logs(
    page: Page, ended: Callable[[], Awaitable[bool]], interval: float
) -> AsyncGenerator[LogLine, None]:
    """Yield every line once, looking for more every `interval` seconds until `ended` says that none will come."""
    token = ""
    told: set[LogLine] = set()
    while True:
        # Asked before the lines are: those written before the end are then among them.
        last_look = await ended()
        while True:
            lines, following = await page(token)
            for line in lines:
                if line not in told:
                    yield line
            # The last page grows, loses what is kept no longer, and is read again; the full ones before it are not.
            told = set(lines)
            if not following:
                break
            token, told = following, set()
        if last_look:
            return
        await asyncio.sleep(interval)
