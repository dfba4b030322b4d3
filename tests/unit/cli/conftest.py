"""The command line against a fake stack."""

from collections.abc import Iterator

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.background_stack import background_stack
from tests.unit.client.fake_stack import FakeStack


@pytest.fixture
def stack() -> Iterator[FakeStack]:
    """A fake stack with the flow `momentum`."""
    with background_stack() as stack:
        yield stack


@pytest.fixture
def shell(stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs commands against the fake stack."""
    monkeypatch.setenv("TRADEWIND_ADDRESS", stack.address)
    return Shell()
