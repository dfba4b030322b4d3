"""What a worker says of arguments that it cannot work with, when it is made."""

import re
from typing import Any

import pytest

from tradewind.worker import Worker, node


@node("plain")
async def plain() -> None: ...


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"address": 7700}, TypeError, 'an address must be text, such as "localhost:7700", not a value of type int'),
        ({"address": "http://stack:7700"}, ValueError, '"http://stack:7700" is not the address of a server'),
        ({"registry_address": "stack"}, ValueError, '"stack" is not the address of a server'),
        ({"worker_id": 5}, ValueError, 'worker_id "5" must begin with a letter or digit'),
        ({"labels": ["zone"]}, TypeError, """labels must map names to text, as in {"zone": "a"}, not ['zone']"""),
        ({"labels": {"rack": 5}}, TypeError, "labels must map names to text"),
        ({"secrets": {"feed.key": "abc"}}, TypeError, "secrets must be a function that returns a secret by its name"),
        ({"codec": "module:codec"}, TypeError, "a codec must have the methods encode and decode"),
        ({"credentials": "ca.pem"}, TypeError, "credentials must be TlsFiles"),
        ({"token": "tw_05_abc\n"}, ValueError, "the token must be one line of ASCII characters"),
        ({"listen": 7700}, TypeError, "listen must be host:port, such as 127.0.0.1:0, not 7700"),
    ],
)
def test_invalid_argument_is_reported_at_once(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as refused:
        Worker(plain, **arguments)
    assert "abc" not in str(refused.value)
