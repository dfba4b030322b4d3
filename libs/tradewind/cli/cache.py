"""`tradewind cache ...`: results that need not be computed again."""

from typing import Annotated

import typer

from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format, counted, length
from tradewind.cli.session import Session, asynchronous

app = typer.Typer(no_args_is_help=True, help="Show how much caches are used, and empty them.", rich_markup_mode=None)

_COLUMNS = ("hits", "misses", "waits", "fills", "oversize", "evicted", "bypassed")


@app.command()
@asynchronous
async def stats(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this cache.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Show how many results caches hold, and how often they are used."""
    async with session.client() as client:
        found = await client.cache_statistics(name)
    rows = [
        (
            each.name,
            length(each.ttl.total_seconds()) if each.ttl is not None else "not configured",
            str(each.entries),
            f"{each.hit_rate:.0%}" if each.hit_rate is not None else "",
            *(str(getattr(each, column) or "") for column in _COLUMNS),
        )
        for each in found
    ]
    session.screen.results(
        output, found, ["CACHE", "TTL", "RESULTS", "HIT RATE", *(column.upper() for column in _COLUMNS)], rows
    )


@app.command()
@asynchronous
async def clear(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the cache.")],
    output: Output = Format.TEXT,
) -> None:
    """Empty a cache for everybody; running nodes add nothing to it."""
    async with session.client() as client:
        removed = await client.clear_cache(name)
    text = f"{name} is empty: removed {counted(removed, 'result')}"
    session.screen.result(output, {"cache": name, "removed": removed}, text)
