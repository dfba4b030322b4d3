"""docs/client.md is right: it lists all methods, arguments and errors of the client."""

import inspect
import re

from tests.house.pages import DOCUMENTS
from tradewind import client
from tradewind.client import Client, SyncClient, TradewindError

PAGE = DOCUMENTS["docs/client.md"]
NAMED = set(re.findall(r"`(\w+)`", PAGE))


def test_every_method_is_listed() -> None:
    assert sorted({name for name in dir(Client) if not name.startswith("_")} - NAMED) == []


def test_sync_client_has_all_methods_but_one() -> None:
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isroutine) if not name.startswith("_")}

    assert {name for name in methods if not hasattr(SyncClient, name)} == {"receive_due"}


def test_every_argument_is_listed_with_its_default() -> None:
    arguments = dict(inspect.signature(Client).parameters)

    assert sorted(arguments.keys() - NAMED) == []
    for name in ("timeout", "patience"):
        assert re.search(rf"^\| `{name}` .* \| {arguments[name].default:g} s \|$", PAGE, re.MULTILINE)


def test_every_error_is_listed() -> None:
    errors = {name for name, each in vars(client).items() if inspect.isclass(each) and issubclass(each, TradewindError)}

    assert sorted(errors - NAMED - {"TradewindError"}) == []
