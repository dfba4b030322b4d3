"""`tradewind config ...`: the limits of the whole system."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.failures import WRONG_INPUT, fail
from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format, Screen, typed_length
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import SystemConfig

app = typer.Typer(no_args_is_help=True, help="Show and set the limits of the system.", rich_markup_mode=None)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


def _limit(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise ValueError("a limit must be at least 1; use none to remove it")
    return value


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a number') from None


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _period(text: str) -> timedelta:
    from tradewind.flow.values import seconds_in

    try:
        return timedelta(seconds=seconds_in(text))
    except OverflowError:
        raise ValueError(f'"{text}" is too long') from None


_LIMITS = ("max_running", "max_running_per_user", "max_running_per_flow", "max_concurrent_tasks")
_FIELDS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_LIMITS, _limit),
    "enable_cache": _boolean,
    "cache_ttl": _period,
}
_MAPS: dict[str, Callable[[str], Any]] = {
    "max_running_per_node_type": _whole,
    "user_weights": _weight,
    "rates": str,
    "caches": _period,
}
"""How the values of these maps are read; their keys are named as in `rates.feed`."""
_ALWAYS_SET = ("enable_cache", "cache_ttl")


@app.command()
@asynchronous
async def get(session: Session, output: Output = Format.TEXT) -> None:
    """Show the configuration."""
    async with session.client() as client:
        session.screen.show(output, await client.get_config(), _describe)


@app.command("set")
@asynchronous
async def set_(
    session: Session,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE",
            help="Such as max_running=100, max_running=none, user_weights.ann=2, rates.feed=100/m, caches.mine=10m.",
        ),
    ],
    output: Output = Format.TEXT,
) -> None:
    """Set limits; `none` removes one."""
    read = [_read(each) for each in settings]
    async with session.client() as client:
        current = await client.get_config()
        changed = await client.update_config(**_changed(current, read), etag=current.etag)
    session.screen.show(output, changed, _describe)


def _read(setting: str) -> tuple[str, str, Any]:
    """Return the name, key ("" without) and value of a setting, None for `none`. Raises typer.Exit for wrong usage."""
    name, given, text = setting.partition("=")
    name, _, key = name.partition(".")
    reader = (_MAPS if key else _FIELDS).get(name)
    if not given or reader is None:
        names = ", ".join((*_FIELDS, *(f"{each}.<name>" for each in _MAPS)))
        raise fail(f'"{setting}" is not a setting; write NAME=VALUE with one of these names: {names}', WRONG_INPUT)
    if text == "none" and name not in _ALWAYS_SET:
        return name, key, None
    try:
        return name, key, reader(text)
    except ValueError as error:
        raise fail(f'"{setting}": {error}', WRONG_INPUT) from None


def _changed(current: "SystemConfig", settings: list[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return the new value of each field named."""
    from tradewind.client import CacheSettings

    changed: dict[str, Any] = {}
    for name, key, value in settings:
        if not key:
            changed[name] = 0 if value is None else value
            continue
        values = changed.setdefault(name, dict(getattr(current, name)))
        if value is None:
            values.pop(key, None)
        elif name == "caches":
            values[key] = CacheSettings(value, values.get(key, CacheSettings()).max_entries)
        else:
            values[key] = value
    return changed


def _describe(screen: Screen, config: "SystemConfig") -> None:
    facts = [(name, str(getattr(config, name) or "none")) for name in _LIMITS]
    facts.append(("enable_cache", str(config.enable_cache).lower()))
    lengths = {"cache_ttl": config.cache_ttl}
    lengths |= {f"caches.{name}": each.ttl or config.cache_ttl for name, each in sorted(config.caches.items())}
    facts += [(name, typed_length(each.total_seconds())) for name, each in lengths.items()]
    for name in ("max_running_per_node_type", "user_weights", "rates"):
        facts += [(f"{name}.{key}", str(value)) for key, value in sorted(getattr(config, name).items())]
    screen.facts(facts)
