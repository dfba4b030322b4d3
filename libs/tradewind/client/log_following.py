"""Following a log: the lines it has, then new ones."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from tradewind.client.logs import LogLine

Page = Callable[[str], Awaitable[tuple[list[LogLine], str]]]
"""Returns the lines at a page token and the token of the next page, "" if there is none."""


async def follow_logs(
    page: Page, ended: Callable[[], Awaitable[bool]], interval: float
) -> AsyncGenerator[LogLine, None]:
    """Yield every line once, looking for more every `interval` seconds until `ended` says that none will come."""
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
