"""What the registry has said about node types is kept for a moment."""

from typing import Any

import pytest

from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.scheduler.peers import registry
from tradewind.scheduler.peers.registry import RegistryPeer


class AnyType:
    """A registry where a worker offers every type that is asked for; it notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def ListNodeTypes(self, request: pb2.ListNodeTypesRequest, timeout: float) -> pb2.ListNodeTypesResponse:
        self.asked.append(sorted(request.types))
        types = [NodeType(type=name, worker_ids=["w"]) for name in request.types]
        return pb2.ListNodeTypesResponse(node_types=types)


class Peer(RegistryPeer):
    """The real peer, without a channel."""

    def __init__(self, stub: AnyType) -> None:
        self._stub: Any = stub
        self._known = {}


async def test_known_types_are_not_asked_for_again() -> None:
    stub = AnyType()
    peer = Peer(stub)
    await peer.catalogue(["a"])
    catalogue = await peer.catalogue(["a", "b"])
    assert stub.asked == [["a"], ["b"]]
    assert catalogue is not None
    assert catalogue.declared("a") is not None
    assert catalogue.declared("b") is not None


async def test_known_types_stay_declared_when_there_is_no_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MAX_TYPES", 2)
    peer = Peer(AnyType())
    await peer.catalogue(["a"])
    catalogue = await peer.catalogue(["a", "b", "c"])
    assert catalogue is not None
    assert [name for name in "abc" if catalogue.declared(name) is None] == []
