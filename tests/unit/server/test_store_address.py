"""Store URLs of every kind, and the faults of invalid ones."""

import re

import pytest

from tradewind.server.redis.address import StoreAddress


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", StoreAddress("single", hosts=(("localhost", 6379),))),
        (
            "rediss://me:s%3Acret%40@store:6380/2",
            StoreAddress("single", True, (("store", 6380),), db=2, user="me", password="s:cret@"),
        ),
        ("redis://:only@[::1]:7000", StoreAddress("single", hosts=(("::1", 7000),), password="only")),
        ("unix:///run/a%20b.sock", StoreAddress("unix", path="/run/a b.sock")),
        ("unix://me:pw@/run/s", StoreAddress("unix", path="/run/s", user="me", password="pw")),
        (
            "redis+sentinel://me:pw@a:1,b/primary/1",
            StoreAddress("sentinel", hosts=(("a", 1), ("b", 26379)), service="primary", db=1, user="me", password="pw"),
        ),
        ("redis+cluster://a:1,b:2", StoreAddress("cluster", hosts=(("a", 1), ("b", 2)))),
        ("rediss+cluster://a/0", StoreAddress("cluster", True, (("a", 6379),))),
    ],
)
def test_valid_addresses_are_parsed(url: str, address: StoreAddress) -> None:
    assert StoreAddress.parse(url) == address


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:6379", "unknown scheme"),
        ("http://localhost", 'unknown scheme "http"; use redis://'),
        ("redis://", "a host is missing"),
        ("redis://a,b", "redis:// takes one host"),
        ("redis://a:port", '"a:port" is not of the form host:port'),
        ("redis://a/x", '"x" is not a database number'),
        ("unix://relative/path", "needs an absolute path"),
        ("redis+sentinel://a:1", "needs the service's name"),
        ("redis+cluster://a/1", 'a cluster has only database 0, not "1"'),
    ],
)
def test_invalid_addresses_are_rejected_with_a_reason(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StoreAddress.parse(url)


def test_password_is_not_shown_in_repr_or_errors() -> None:
    assert "hidden" not in repr(StoreAddress.parse("redis://me:hidden@a"))
    with pytest.raises(ValueError, match="not a database") as caught:
        StoreAddress.parse("redis://me:hidden@a/x")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("mark", ["#", "?", "/", "[", "\u2100"])
@pytest.mark.parametrize("scheme", ["redis", "rediss+sentinel", "redis+cluster"])
def test_unquoted_password_is_not_shown_in_errors(scheme: str, mark: str) -> None:
    with pytest.raises(ValueError, match=r"store URL: .*quote special characters in a password") as caught:
        StoreAddress.parse(f"{scheme}://me:hid{mark}den@a/x")
    assert not {"hid", "den"} & set(re.split(r"\W", str(caught.value)))


@pytest.mark.parametrize("more", ["?db=3", "#3"])
def test_query_and_fragment_are_refused(more: str) -> None:
    with pytest.raises(ValueError, match='it must not have a "\\?" or "#"'):
        StoreAddress.parse(f"redis://a{more}")
