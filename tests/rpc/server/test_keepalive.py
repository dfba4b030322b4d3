"""gRPC silently accepts options it does not know, so the names of options are checked against the core itself."""

from pathlib import Path

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from tradewind.server import bootstrap
from tradewind.server.connection_limits import connection_options

OPTIONS = [name for name, _ in (*bootstrap._options(1024), *connection_options(60.0))]


@pytest.mark.parametrize("name", OPTIONS)
def test_grpc_core_knows_every_server_option(name: str) -> None:
    assert name.encode() in Path(cygrpc.__file__).read_bytes()
