"""`tradewind config ...`: the limits of the whole system."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.failures import WRONG_INPUT, fail
from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format, Screen
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import SystemConfig

app = typer.Typer(no_args_is_help=True, help="Show and set the limits of the system.", rich_markup_mode=None)

_NUMBERS = ("max_running", "max_running_per_user", "max_running_per_flow", "max_concurrent_tasks")
_MAPS: dict[str, type[int] | type[float] | type[str]] = {
    "max_running_per_node_type": int,
    "user_weights": float,
    "rates": str,
}
_LENGTHS = ("cache_ttl",)
_CACHES = "caches"
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}


@app.command()
@asynchronous
async def get(session: Session, output: Output = Format.TEXT) -> None:
    """Show the configuration."""
    async with session.client() as client:
        _show(session.screen, await client.get_config(), output)


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
        _show(session.screen, await client.update_config(**_changed(current, read), etag=current.etag), output)


def _read(setting: str) -> tuple[str, str, Any]:
    """Return the name, key ("" without) and value of a setting, None for `none`. Raises typer.Exit for wrong usage."""
    name, given, text = setting.partition("=")
    name, _, key = name.partition(".")
    keyed = name in (*_MAPS, _CACHES)
    if not given or keyed != bool(key) or not (keyed or name in (*_NUMBERS, *_LENGTHS, "enable_cache")):
        names = ", ".join((*_NUMBERS, "enable_cache", *_LENGTHS, *(f"{each}.<name>" for each in (*_MAPS, _CACHES))))
        raise fail(f'"{setting}" is not a setting; write NAME=VALUE with one of these names: {names}', WRONG_INPUT)
    if name == "enable_cache":
        return name, key, _boolean(setting, text)
    if text == "none" and name not in _LENGTHS:
        return name, key, None
    if name in (*_LENGTHS, _CACHES):
        return name, key, timedelta(seconds=_seconds(setting, text))
    value = _number(setting, text, _MAPS.get(name, int))
    if name in _NUMBERS and value < 1:
        raise fail(f'"{setting}": a limit must be at least 1; use none to remove it', WRONG_INPUT)
    return name, key, value


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
        elif name == _CACHES:
            values[key] = CacheSettings(value, values.get(key, CacheSettings()).max_entries)
        else:
            values[key] = value
    return changed


def _number(setting: str, text: str, kind: type[int] | type[float] | type[str]) -> Any:
    try:
        return kind(text)
    except ValueError:
        expected = "whole number" if kind is int else "number"
        raise fail(f'"{setting}": "{text}" is not a {expected}', WRONG_INPUT) from None


def _length(time: timedelta) -> str:
    """Return a length of time as `config set` takes it: 90s, 1h."""
    for unit, size in _UNITS.items():
        count, rest = divmod(time, size)
        if not rest:
            return f"{count}{unit}"
    return f"{time / timedelta(milliseconds=1):.0f}ms"


def _boolean(setting: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise fail(f'"{setting}": must be true or false', WRONG_INPUT)
    return text == "true"


def _seconds(setting: str, text: str) -> float:
    from tradewind.flow.values import seconds_in

    try:
        return seconds_in(text)
    except ValueError as error:
        raise fail(f'"{setting}": {error}', WRONG_INPUT) from None


def _show(screen: Screen, config: "SystemConfig", output: Format) -> None:
    if output is Format.JSON:
        screen.json(config)
        return
    screen.facts([(name, str(getattr(config, name) or "none")) for name in _NUMBERS])
    screen.facts([("enable_cache", str(config.enable_cache).lower()), ("cache_ttl", _length(config.cache_ttl))])
    for name, cache in sorted(config.caches.items()):
        screen.facts([(f"caches.{name}", _length(cache.ttl or config.cache_ttl))])
    for name in _MAPS:
        screen.facts([(f"{name}.{key}", str(value)) for key, value in sorted(getattr(config, name).items())])
