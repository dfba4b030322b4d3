"""A typed Lua script: MessagePack in, MessagePack out, read from a `lua/` folder beside the store that runs it.

A script's file begins with a comment that names its KEYS, its args and what it returns. The script can use `KEYS` and

- `args`: what the caller passed, unpacked. `None` becomes nil, so a list with a hole has no definite length.
- `now(now_ms)`: returns `now_ms`, or the server's own time in milliseconds when it is 0.
- `--!include <name>` on its own line: makes `lua/<name>.lua` of the same package, or of this one, available.
- `--!allow-oom` on its own line: the script runs while the store is full, too. Only for one that merely removes.
- `--!no-writes` on its own line: the script runs while the store takes no writes, too; it only reads.

Included code exists once for all scripts of the folder, and keeps its state from one run to the next. So variables that
belong to a run are set by a function that the file registers to run each time:

    local records, time
    fresh(function() records, time = {}, now(args.now) end)

These run in the order of the files, before every script of the folder, whatever its args.

A script returns `cmsgpack.pack(...)` of one value. Note that cmsgpack has no `bin` (pass `str`, never `bytes`), and
writes an empty table as an empty array (declare a mapping in a reply as a list of pairs) and integral floats as
integers. A folder's included files together have room for 200 locals, of which a test keeps 40 free, and a function for
60 locals from outside it.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec
from redis.exceptions import ResponseError

from tradewind.server.faults import Unreadable
from tradewind.server.metrics import SCRIPT_ERRORS, SCRIPT_SECONDS, SWITCH
from tradewind.server.redis.client import Client
from tradewind.server.redis.library import library
from tradewind.server.redis.records import ANOTHER_TYPE

Reply = TypeVar("Reply")

_encode = msgspec.msgpack.Encoder().encode
_NAMES_KEY = re.compile(r"WRONGTYPE in the place of (\S+)")


class Script(Generic[Reply]):
    """One Lua script and the type of its reply.

    `package` is the package or module whose neighbouring folder `lua` holds `<name>.lua`. Calls raise redis-py's
    exceptions and are never repeated, except a call that did not run because the server did not know the script yet.
    Where a script fails with `WRONGTYPE in the place of <key>`, they raise Unreadable. On a cluster all `keys` must
    share a slot.
    """

    def __init__(self, package: str, name: str, reply: type[Reply]) -> None:
        """Raises FileNotFoundError when the script does not exist."""
        self.name = name
        self._library = library(package)
        if name not in self._library:
            raise FileNotFoundError(f"{package} has no script lua/{name}.lua")
        self._decode: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(reply)

    def __repr__(self) -> str:
        return f"Script({self.name!r})"

    async def __call__(self, client: Client, keys: Sequence[str], args: object) -> Reply:
        """Run the script once and return its reply.

        `args` is anything msgspec can encode: a Struct (array_like for brevity), tuple, list or dict.
        """
        if SWITCH.on:
            return self.decode(await self._run_measured(client, keys, _encode(args)))
        return self.decode(await self._run(client, keys, _encode(args)))

    def _name_for(self, client: Client) -> str:
        return f"{self.name}_{self._library.digest_for(client)}"

    async def _run(self, client: Client, keys: Sequence[str], blob: bytes) -> bytes:
        function = self._name_for(client)
        try:
            raw: bytes = await client.fcall(function, len(keys), *keys, blob)
        except ResponseError as error:
            if not is_unknown_function(error):
                raise _named(error) from None
            load_error = await self._library.load(client)
            try:
                raw = await client.fcall(function, len(keys), *keys, blob)
            except ResponseError as second_error:
                # Of a cluster, the master of these keys may not have taken the library, as when it is out of memory.
                if load_error is not None and is_unknown_function(second_error):
                    raise load_error from None
                raise _named(second_error) from None
        return raw

    async def _run_measured(self, client: Client, keys: Sequence[str], blob: bytes) -> bytes:
        started_s = time.perf_counter()
        try:
            raw = await self._run(client, keys, blob)
        except Exception:
            SCRIPT_ERRORS.inc()
            raise
        SCRIPT_SECONDS.labels(self.name).observe(time.perf_counter() - started_s)
        return raw

    async def load(self, client: Client) -> None:
        """Make the script known to the server, or to every master of a cluster."""
        await self._library.load(client)

    async def many(self, client: Client, calls: Sequence[tuple[Sequence[str], object]]) -> list[Reply]:
        """Run the script once per `(keys, args)` in one round trip and return the replies in order.

        The runs are not one transaction. The first error is raised after all of them have been tried.
        """
        replies = await self.each(client, calls)
        for reply in replies:
            if isinstance(reply, Unreadable):
                raise reply
        return cast(list[Reply], replies)

    async def each(self, client: Client, calls: Sequence[tuple[Sequence[str], object]]) -> list[Reply | Unreadable]:
        """Do as `many`, but return Unreadable for runs that raise it."""
        started_s = time.perf_counter()
        function = self._name_for(client)
        runs = [client.fcall(function, len(keys), *keys, _encode(args)) for keys, args in calls]
        raws: list[Any] = await asyncio.gather(*runs, return_exceptions=True)
        if SWITCH.on:
            SCRIPT_SECONDS.labels(self.name).observe(time.perf_counter() - started_s)
            # A run that failed because the server did not know the script is repeated below, and counted there.
            SCRIPT_ERRORS.inc(sum(isinstance(raw, Exception) and not is_unknown_function(raw) for raw in raws))
        replies: list[Reply | Unreadable] = []
        failures: list[BaseException] = []
        for (keys, args), raw in zip(calls, raws, strict=True):
            try:
                if is_unknown_function(raw):
                    replies.append(await self(client, keys, args))
                elif isinstance(raw, BaseException):
                    raise _named(raw)
                else:
                    replies.append(self.decode(raw))
            except Unreadable as error:
                replies.append(error)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return replies

    def decode(self, raw: bytes) -> Reply:
        """Return the reply in the bytes that the script returned.

        Raises msgspec.ValidationError, naming the script, when they hold no valid reply.
        """
        try:
            return self._decode.decode(raw)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"the reply of script {self.name}: {error}") from error


def is_unknown_function(error: object) -> bool:
    """Whether a server refused a run because it does not know the script (yet, or after FUNCTION FLUSH)."""
    return isinstance(error, ResponseError) and str(error) == "Function not found"


def _named(error: BaseException) -> BaseException:
    """Return Unreadable instead of the error of a script that names a key of another type."""
    named = _NAMES_KEY.search(str(error)) if isinstance(error, ResponseError) else None
    return Unreadable(named[1], ANOTHER_TYPE) if named else error
