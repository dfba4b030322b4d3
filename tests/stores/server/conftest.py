"""The event loops that the tests of this folder run on, and a backup."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop

from tradewind.server.redis import backup as backups

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Tests that use a transport directly run on the services' loop and on asyncio's own."""
    if item.path.name.startswith("test_pipe"):
        return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


BACKED_UP_AT = datetime(2026, 11, 22, 3, 17, tzinfo=UTC)


@pytest.fixture
def copied(tmp_path: Path) -> backups.Backup:
    """Make a small backup of append-only files."""
    source = tmp_path / "data" / backups.APPEND_ONLY
    source.mkdir(parents=True)
    (source / backups.MANIFEST).write_text(
        "file base seq 1 type b\nfile gone seq 1 type h startoffset 4\nfile more seq 2 type i startoffset 8\n"
    )
    (source / "base").write_text("BASE")
    (source / "more").write_text("MORE")
    return backups.back_up_directory(tmp_path / "data", tmp_path / "backups", BACKED_UP_AT)
