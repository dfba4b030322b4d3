"""Storing a definition: what is known from then on."""

from typing import Any

import pytest

from tests.unit.scheduler.flows import analyzed, edge, flow, node
from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.weather import definition_from_json
from tradewind.scheduler.use_cases import definitions
from tradewind.scheduler.use_cases.definitions import planned_flow
from tradewind.scheduler.use_cases.store_definition import Author, StoreDefinition, registration_of


async def test_definition_that_was_just_read_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = MemoryScheduler()
    definition = analyzed(flow(nodes=[node("a", config={"n": 1.0}), node("b")], edges=[edge("a", "b")])).definition
    assert definition is not None
    registration = registration_of("f", definition, {}, 0, Author())
    stores_nothing_running: Any = None
    store = StoreDefinition(scheduler.stores.flows, scheduler.definitions, stores_nothing_running)
    read: list[str] = []
    monkeypatch.setattr(definitions, "definition_from_json", read.append)
    await store(registration, (), definition)
    planned = scheduler.definitions.current("f")
    assert planned is not None
    assert read == []
    shape = planned.shape
    again = definition_from_json(registration.config_json)
    assert planned == planned_flow("f", shape.user_id, shape.revision, shape.digest, again)
