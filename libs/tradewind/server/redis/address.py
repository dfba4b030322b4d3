"""Store URLs: what they may look like, and their parts."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

Kind = Literal["single", "unix", "sentinel", "cluster"]

_KINDS: dict[str, tuple[Kind, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_DEFAULT_PORTS: dict[Kind, int] = {"single": 6379, "unix": 0, "sentinel": 26379, "cluster": 6379}
_QUOTED = 'quote special characters in a password, such as "#" as "%23"'


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is and which user to log in as; `hosts` are servers, seeds of a cluster or sentinels."""

    kind: Kind
    tls: bool = False
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "StoreAddress":
        """Read a store URL. Raises ValueError, which says what is wrong without repeating the password."""
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError(f"store URL: cannot be parsed: {_QUOTED}") from None
        if parts.scheme not in _KINDS:
            raise ValueError(
                f'store URL: unknown scheme "{parts.scheme}"; use redis://, rediss://, unix://, redis+sentinel:// '
                "or redis+cluster://"
            )
        kind, tls = _KINDS[parts.scheme]
        if parts.query or parts.fragment or ("@" in parts.path and kind != "unix"):
            raise ValueError(f'store URL: it must not have a "?" or "#", and an "@" only before the host: {_QUOTED}')
        login, _, host_list = parts.netloc.rpartition("@")
        name, _, secret = login.partition(":")
        user, password = unquote(name) or None, unquote(secret) or None
        path = unquote(parts.path)
        if kind == "unix":
            if host_list or not path.startswith("/"):
                raise ValueError("store URL: unix:// needs an absolute path, as in unix:///run/redis.sock")
            return cls(kind, path=path, user=user, password=password)
        hosts = tuple(_host(host_and_port, _DEFAULT_PORTS[kind]) for host_and_port in host_list.split(","))
        tail = path.strip("/")
        if kind == "sentinel":
            service, _, database = tail.partition("/")
            if not service:
                raise ValueError("store URL: redis+sentinel:// needs the service's name, as in .../mymaster")
            return cls(kind, tls, hosts, service=service, db=_database(database), user=user, password=password)
        if kind == "cluster" and tail not in ("", "0"):
            raise ValueError(f'store URL: a cluster has only database 0, not "{tail}"')
        if kind == "single" and len(hosts) > 1:
            raise ValueError("store URL: redis:// takes one host; redis+sentinel:// and redis+cluster:// take several")
        return cls(kind, tls, hosts, db=_database(tail), user=user, password=password)


def _host(host_and_port: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host_and_port}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f'store URL: "{host_and_port}" is not of the form host:port') from None
    if not host:
        raise ValueError("store URL: a host is missing")
    return host, port or default_port


def _database(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise ValueError(f'store URL: "{text}" is not a database number')
    return int(text)
