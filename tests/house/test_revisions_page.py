"""docs/revisions.md is right: its calls exist, and its fields are those that can be changed."""

import re

from tests.house.project import ROOT
from tradewind.api.scheduler.v1 import scheduler_service_pb2
from tradewind.client import Client
from tradewind.scheduler.domain.flow_update import UPDATABLE

PAGE = (ROOT / "docs" / "revisions.md").read_text(encoding="utf-8")


def test_calls_of_the_page_exist() -> None:
    service = scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
    named = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+\b", PAGE))

    assert named >= {"UpdateFlow", "RegisterFlow", "DiffRevisions"}
    assert named <= set(service.methods_by_name)


def test_client_methods_of_the_page_exist() -> None:
    named = set(re.findall(r"\b(?:\w+_flow|\w+_revisions?)\b", PAGE))

    assert [name for name in sorted(named) if not hasattr(Client, name)] == []


def test_every_updatable_field_is_documented() -> None:
    assert [name for name in UPDATABLE if f"`{name}`" not in PAGE] == []
