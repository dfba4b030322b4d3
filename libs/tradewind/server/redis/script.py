"""A typed Lua script: MessagePack in, MessagePack out, read from a `lua/` folder beside the store that runs it.

A script's file begins with a comment that names its KEYS, its args and what it returns. It finds

- `args`: what the caller passed, unpacked. `None` becomes nil, so a list with a hole in it has no certain length.
- `now(now_ms)`: `now_ms`, or the server's own time in milliseconds when it is 0.
- `--!include <name>` on a line of its own: replaced by `lua/<name>.lua` of the same package, or of this one, once per
  script;
- `--!level` on a line of its own: what follows is a function within what came before. Lua makes a script's functions
  anew in each run, and looks for each local they use among all those of the level it is from, but finds one of an outer
  level at once. A level may use 60 locals of those outside.

Each function costs a run about 2000 machine instructions whether it is called or not. What few runs need is therefore
made by one function when it is called first, which then stands for what it made:

    local function stops()
      local made = {}
      stops = function() return made end
      function made.request(record) ... end
      return made
    end

A script returns `cmsgpack.pack(...)` of one value. Mind that cmsgpack knows no `bin` (pass `str`, never `bytes`),
writes an empty table as an empty array (declare a mapping in a reply as a list of pairs) and integral floats as
integers; and that a level has room for 200 locals, the included files' among them.
"""

import asyncio
import hashlib
import importlib.util
import re
import time
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Generic, TypeVar, cast

import msgspec
from redis.exceptions import NoScriptError

from tradewind.server.metrics import SCRIPT_ERRORS, SCRIPT_SECONDS, SWITCH
from tradewind.server.redis.client import Pipeline, Redis

Reply = TypeVar("Reply")

_INCLUDE = re.compile(r"^--!include[ \t]+([a-z0-9_]+)[ \t]*$", re.MULTILINE)
_LEVEL = re.compile(r"^--!level[ \t]*$", re.MULTILINE)
_encode = msgspec.msgpack.Encoder().encode


class Script(Generic[Reply]):
    """One Lua script and the type of its reply.

    `package` is the package or module whose neighbouring folder `lua` holds `<name>.lua`. Calls raise redis-py's
    exceptions as they come and are never repeated, but for one that did not run because the server did not know the
    script yet. On a cluster all `keys` must share a slot.
    """

    def __init__(self, package: str, name: str, reply: type[Reply]) -> None:
        self.name = name
        self.text = _compose(package, name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self._decode: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(reply)

    def __repr__(self) -> str:
        return f"Script({self.name!r})"

    async def __call__(self, client: Redis, keys: Sequence[str], args: object) -> Reply:
        """Run the script once and return its reply.

        `args` is whatever msgspec can encode: a Struct (array_like for brevity), tuple, list or dict.
        """
        if SWITCH.on:
            return self.decode(await self._measured(client, keys, _encode(args)))
        return self.decode(await self._run(client, keys, _encode(args)))

    async def _run(self, client: Redis, keys: Sequence[str], blob: bytes) -> bytes:
        try:
            raw: bytes = await client.evalsha(self.sha, len(keys), *keys, blob)
        except NoScriptError:
            # EVAL runs it and makes it known on the very server that was asked, whatever the topology.
            raw = await client.eval(self.text, len(keys), *keys, blob)
        return raw

    async def _measured(self, client: Redis, keys: Sequence[str], blob: bytes) -> bytes:
        begun = time.perf_counter()
        try:
            raw = await self._run(client, keys, blob)
        except Exception:
            SCRIPT_ERRORS.inc()
            raise
        SCRIPT_SECONDS.labels(self.name).observe(time.perf_counter() - begun)
        return raw

    async def load(self, client: Redis) -> None:
        """Make the script known to the server (to every master of a cluster), as `queue` needs it."""
        await client.script_load(self.text)

    def queue(self, pipeline: Pipeline, keys: Sequence[str], args: object) -> None:
        """Add a run of the script to a pipeline; decode its raw result with `decode`.

        A server that has forgotten the script (restarted, failed over) answers NoScriptError in that place.
        """
        # Not evalsha(): a cluster's pipeline refuses that name, though it routes the command as it should.
        pipeline.execute_command("EVALSHA", self.sha, len(keys), *keys, _encode(args))

    async def many(self, client: Redis, calls: Sequence[tuple[Sequence[str], object]]) -> list[Reply]:
        """Run the script once per `(keys, args)` in one round trip and return the replies in order.

        The runs are not one transaction. The first error is raised after all of them were tried.
        """
        begun = time.perf_counter()
        runs = [client.evalsha(self.sha, len(keys), *keys, _encode(args)) for keys, args in calls]
        raws: list[Any] = await asyncio.gather(*runs, return_exceptions=True)
        if SWITCH.on:
            SCRIPT_SECONDS.labels(self.name).observe(time.perf_counter() - begun)
            # One that the server did not know is run again below, and counted there.
            SCRIPT_ERRORS.inc(sum(isinstance(raw, Exception) and not isinstance(raw, NoScriptError) for raw in raws))
        replies: list[Reply] = []
        failures: list[BaseException] = []
        for (keys, args), raw in zip(calls, raws, strict=True):
            try:
                if isinstance(raw, NoScriptError):
                    replies.append(await self(client, keys, args))
                elif isinstance(raw, BaseException):
                    failures.append(raw)
                else:
                    replies.append(self.decode(raw))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return replies

    def decode(self, raw: bytes) -> Reply:
        """Return the reply in the bytes that the script returned.

        Raises msgspec.ValidationError, naming the script, when they do not hold one.
        """
        try:
            return self._decode.decode(raw)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"the reply of script {self.name}: {error}") from error


def _compose(package: str, name: str) -> str:
    shared = resources.files(__package__) / "lua"
    folders = (_folder(package), shared)
    seen: set[str] = set()

    def read(part: str) -> str:
        for folder in folders:
            if (file := folder / f"{part}.lua").is_file():
                return _INCLUDE.sub(include, file.read_text(encoding="utf-8"))
        raise FileNotFoundError(f"{package} has no script lua/{part}.lua (wanted by {name})")

    def include(match: re.Match[str]) -> str:
        part = match.group(1)
        if part in seen:
            return ""
        seen.add(part)
        return read(part).rstrip("\n")

    prelude = (shared / "prelude.lua").read_text(encoding="utf-8")
    text, levels = _LEVEL.subn("return (function()", prelude + read(name))
    return text + "\nend)()" * levels


def _folder(package: str) -> Traversable:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"no package {package} to read Lua scripts from", name=package)
    anchor = package if spec.submodule_search_locations is not None else cast(Any, spec.parent)
    return resources.files(anchor) / "lua"
