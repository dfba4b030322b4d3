"""The Lua functions of a package, which share code and are loaded into a server once.

They form a library of Redis Functions: a script sent with EVAL creates all its Lua functions anew in each run, which
costs more than most runs themselves.
"""

import asyncio
import functools
import hmac
import importlib.util
import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, cast
from weakref import WeakKeyDictionary

from redis.asyncio import RedisCluster

from tradewind.server.redis.client import Client

_INCLUDE = re.compile(r"^--!include[ \t]+([a-z0-9_]+)[ \t]*\n", re.MULTILINE)
_FLAG = re.compile(r"^--!(allow-oom|no-writes)$", re.MULTILINE)

# A library may not use Redis while it is being loaded, so its first run makes everything.
_TEXT = """\
#!lua name=tradewind_{digest}
local run
local function make()
{shared}
local scripts = {{}}
{scripts}
return function(name, keys, argv)
  KEYS, args = keys, cmsgpack.unpack(argv[1])
  local all = resets
  for i = 1, #all do all[i]() end
  return scripts[name]()
end
end
local function register(name, flags)
  redis.register_function{{function_name = name .. '_{digest}', flags = flags, callback = function(keys, argv)
{guard}    run = run or make()
    return run(name, keys, argv)
  end}}
end
{registered}
"""


# While a slot moves, each of its keys is at one of two masters. The old one stops a script at a key that has left, the
# new one takes a key that has yet to come for one that does not exist. Of two keys that never exist, both say so before
# the script has changed anything.
_CLUSTER_GUARD = """\
    local found = keys[1] and redis.pcall('EXISTS', keys[1] .. '~', keys[1] .. '~~')
    if type(found) == 'table' and string.find(found.err, 'non local key', 1, true) then
      return redis.error_reply('TRYAGAIN the slot is moving to another master')
    end
"""


class Library:
    """All scripts of a `lua` folder, as they are loaded into a server.

    The server knows them by names that end in a digest of their text and of their user's password. So two versions of a
    service do not collide, and no store user can replace another's code with its own: the names cannot be computed
    without the password, and ACLs keep everybody from listing them.
    """

    def __init__(self, package: str) -> None:
        """Read the folder `lua` beside a package or module. Raises ModuleNotFoundError or FileNotFoundError."""
        self._folders = (_folder(package), resources.files(__package__) / "lua")
        self._shared: dict[str, str] = {}
        self._loading: WeakKeyDictionary[Client, asyncio.Task[BaseException | None]] = WeakKeyDictionary()
        names = (file.name.removesuffix(".lua") for file in self._folders[0].iterdir() if file.name.endswith(".lua"))
        texts = {name: self._read(name) for name in sorted(names)}
        included = {part for text in texts.values() for part in _INCLUDE.findall(text)}
        self._add_shared("prelude")
        self._scripts = {name: self._without_includes(text) for name, text in texts.items() if name not in included}
        self._digests: dict[tuple[str, bool], str] = {}

    def __contains__(self, script: str) -> bool:
        return script in self._scripts

    def digest(self, password: str, *, cluster: bool = False) -> str:
        """Return the ending of its functions' names for a client that logs in with `password`."""
        digest = self._digests.get((password, cluster))
        if digest is None:
            digest = hmac.new(password.encode(), self._with_digest("", cluster).encode(), "sha1").hexdigest()
            self._digests[password, cluster] = digest
        return digest

    def digest_for(self, client: Client) -> str:
        """Return the ending of its functions' names for a client."""
        return self.digest(client.password, cluster=_is_cluster(client))

    def text(self, password: str, *, cluster: bool = False) -> str:
        """Return the text for FUNCTION LOAD. In a cluster, no script runs while its slot moves."""
        return self._with_digest(self.digest(password, cluster=cluster), cluster)

    async def load(self, client: Client) -> BaseException | None:
        """Load it into the server, or into every master of a cluster; concurrent calls share one attempt.

        Returns the error of a master that did not take it while others did.
        """
        loading = self._loading.get(client)
        if loading is None or loading.done():
            text = self.text(client.password, cluster=_is_cluster(client))
            loading = asyncio.get_running_loop().create_task(client.load_functions(text))
            # If every caller has given up, nobody else retrieves an error.
            loading.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._loading[client] = loading
        return await asyncio.shield(loading)

    def _with_digest(self, digest: str, cluster: bool) -> str:
        return _TEXT.format(
            digest=digest,
            guard=_CLUSTER_GUARD if cluster else "",
            shared="\n".join(self._shared.values()),
            scripts="\n".join(f"function scripts.{name}()\n{text}\nend" for name, text in self._scripts.items()),
            registered="\n".join(f"register('{name}', {_flags_of(text)})" for name, text in self._scripts.items()),
        )

    def _read(self, name: str) -> str:
        for folder in self._folders:
            if (file := folder / f"{name}.lua").is_file():
                return file.read_text(encoding="utf-8")
        raise FileNotFoundError(f"no {name}.lua in {self._folders[0]}")

    def _without_includes(self, text: str) -> str:
        for part in _INCLUDE.findall(text):
            self._add_shared(part)
        return _INCLUDE.sub("", text).rstrip("\n")

    def _add_shared(self, part: str) -> None:
        if part not in self._shared:
            text = self._without_includes(self._read(part))
            self._shared[part] = text


@functools.cache
def library(package: str) -> Library:
    """Return the one library of a package or module."""
    return Library(package)


def _flags_of(text: str) -> str:
    flags = ", ".join(f"'{flag}'" for flag in _FLAG.findall(text))
    return f"{{{flags}}}"


def _is_cluster(client: Client) -> bool:
    return isinstance(client, RedisCluster)


def _folder(package: str) -> Traversable:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"no package {package} to read Lua scripts from", name=package)
    anchor = package if spec.submodule_search_locations is not None else cast(Any, spec.parent)
    return resources.files(anchor) / "lua"
