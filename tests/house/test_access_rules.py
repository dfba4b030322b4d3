"""The table of who may call which method is complete and matches the methods' descriptors."""

from collections.abc import Iterator

from google.protobuf.descriptor import MethodDescriptor
from grpc_channelz.v1 import channelz_pb2

from tests.house.manifests import SERVICES
from tests.house.project import ROOT
from tradewind.api.access.v1 import access_service_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2
from tradewind.api.registry.v1 import registry_service_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2
from tradewind.node_task_manager.rpc.external_scaler import NAME as SCALER
from tradewind.server.access.methods import OPEN, methods, rule
from tradewind.server.access.roles import Role

FILES = (
    access_service_pb2,
    node_task_manager_service_pb2,
    registry_service_pb2,
    scheduler_service_pb2,
    trigger_service_pb2,
    channelz_pb2,
)
CALLED_BY_NAME = "worker_service.proto"
"""Served by workers, which have no gate: the network or TLS decides who may call them."""


def served() -> Iterator[MethodDescriptor]:
    """Return every method of every service that is behind a gate."""
    for module in FILES:
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def name_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_every_proto_service_is_covered_by_these_tests() -> None:
    protos = {path.name for path in (ROOT / "protos").rglob("*_service.proto")} - {CALLED_BY_NAME}
    assert {module.DESCRIPTOR.name.rpartition("/")[2] for module in FILES[:-1]} == protos


def test_every_method_has_an_access_rule_and_every_rule_a_method() -> None:
    """A forgotten method is closed to all, and a rule without a method is a misspelling."""
    assert methods() == {name_of(method) for method in served()}


def test_every_served_service_has_access_rules_or_is_open() -> None:
    listed = {service.full_name for module in FILES for service in module.DESCRIPTOR.services_by_name.values()}
    served = {name for built, _, _ in SERVICES.values() for name in built.names}
    assert served - listed == {SCALER}
    assert f"/{SCALER}/".startswith(OPEN)


def test_exactly_streams_and_calls_that_wait_are_rechecked() -> None:
    lasting = {name for name in methods() if (found := rule(name)) and found.lasting}
    streams = {name_of(each) for each in served() if each.client_streaming or each.server_streaming}
    assert lasting == streams | {name_of(each) for each in served() if "wait" in each.input_type.fields_by_name}


def test_request_with_a_user_id_is_limited_to_the_callers_own() -> None:
    """A request with a user id is a user's own, or for those who may see everything."""
    for method in served():
        found = rule(name_of(method))
        assert found is not None
        if "user_id" in method.input_type.fields_by_name and found.admits(Role.USER):
            assert found.owned or "access" in method.full_name or method.name == "ListFlows", method.full_name
