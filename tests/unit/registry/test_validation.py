"""Faults of a worker or a declaration: all of them, each with its path."""

from dataclasses import replace
from typing import Any

import pytest

from tradewind.registry.domain.limits import Limits
from tradewind.registry.domain.node_type import InputHandle, NodeType, OutputHandle
from tradewind.registry.domain.validation import node_type_violations, worker_violations
from tradewind.registry.domain.worker import Worker
from tradewind.server.json_schema import schema_fault

LIMITS = Limits()
WORKER = Worker("w", "i1", 10, node_types=("average", "report"), labels=(("zone", "a"),))


def found(**changes: Any) -> dict[str, str]:
    """Return the faults of a good worker after some changes, by path."""
    return {each.path: each.message for each in worker_violations(replace(WORKER, **changes), LIMITS)}


def found_in(*node_types: NodeType, limits: Limits = LIMITS) -> dict[str, str]:
    """Return the faults of declarations, by path."""
    return {each.path: each.message for each in node_type_violations(node_types, limits, schema_fault)}


def test_valid_worker_has_no_faults() -> None:
    assert found() == {}
    assert found(node_types=(), labels=()) == {}


def test_all_faults_of_a_worker_are_reported_at_once() -> None:
    faults = found(
        worker_id="",
        incarnation="",
        capacity=0,
        running=-1,
        pid=-1,
        api_url="nowhere",
        node_types=("a b",),
        host="x" * 300,
    )
    assert sorted(faults) == [
        "worker.api_url",
        "worker.capacity",
        "worker.host",
        "worker.incarnation",
        "worker.node_types[0]",
        "worker.pid",
        "worker.running",
        "worker.worker_id",
    ]
    assert faults["worker.capacity"] == "must be at least 1, is 0"
    assert faults["worker.host"] == "must have at most 256 characters, has 300"


def test_repeated_or_too_many_node_types_are_faults() -> None:
    assert found(node_types=("a", "b", "a")) == {
        "worker.node_types[2]": '"a" is already at worker.node_types[0]; list each name only once'
    }
    many = tuple(f"t{number}" for number in range(501))
    assert found(node_types=many) == {"worker.node_types": "must have at most 500, has 501"}


@pytest.mark.parametrize(
    "address",
    [
        "",
        "worker:9000",
        "10.0.0.1:9000",
        "[::1]:9000",
        "http://worker:9000",
        "https://worker.example:443/",
        "grpc://worker:9000",
        "dns:///workers.default.svc:9000",
        "dns://10.0.0.53/workers.default.svc:9000",
        "x" * 507 + ":9000",
    ],
)
def test_valid_addresses_are_accepted(address: str) -> None:
    assert found(api_url=address) == {}


@pytest.mark.parametrize(
    "address",
    [
        "worker",
        "worker:0",
        "worker:port",
        "worker:70000",
        ":9000",
        "http://worker",
        "ftp://worker:9000",
        "file:///tmp/worker:9000",
        "http://user:password@worker:9000",
        "http://user@worker:9000",
        "http:///worker:9000",
        "dns://worker:9000",
        "http://worker:9000/run",
        "worker:9000?to=elsewhere",
        "http://worker:9000#run",
        "worker :9000",
        "http://[::1:9000",
        "x" * 508 + ":9000",
    ],
)
def test_invalid_addresses_are_faults(address: str) -> None:
    assert "is not an address: use" in found(api_url=address)["worker.api_url"]


def test_count_keys_and_lengths_of_labels_are_checked() -> None:
    assert found(labels=tuple((f"l{number}", "") for number in range(33))) == {
        "worker.labels": "must have at most 32, has 33"
    }
    faults = found(
        labels=(("", "a"), ("a b", "a"), ("x" * 129, "a"), ("app.kubernetes.io/name", "a"), ("zone", "x" * 257))
    )
    assert len(faults) == 4
    assert faults['worker.labels["zone"]'] == "must have at most 256 characters, has 257"


def test_worker_may_be_exactly_at_its_limits() -> None:
    node_types = tuple(f"t{number}" for number in range(500))
    labels = tuple((f"l{number}", "x" * 256) for number in range(32))
    assert found(node_types=node_types, labels=labels, host="x" * 256) == {}


GOOD = NodeType(
    "average",
    "Mean of the last prices",
    (InputHandle("prices", '{"type": "array"}', required=True), InputHandle("more", gather=True)),
    (OutputHandle("average", '{"type": "number"}'),),
    '{"type": "object"}',
)


def test_valid_declaration_has_no_faults() -> None:
    assert found_in(GOOD, NodeType("bare")) == {}


def test_all_faults_of_all_declarations_are_reported_at_once() -> None:
    bad = NodeType(
        "a b",
        "x" * 5_000,
        (InputHandle(""), InputHandle("x", "[1]"), InputHandle("x", '{"type": "strng"}')),
        (OutputHandle("y", "{"), OutputHandle("y")),
        "true",
        "1" * 129,
    )
    faults = found_in(GOOD, bad, GOOD)
    assert sorted(faults) == [
        "node_types[1].config_schema_json",
        "node_types[1].description",
        "node_types[1].inputs[0].name",
        "node_types[1].inputs[1].schema_json",
        "node_types[1].inputs[2].name",
        "node_types[1].inputs[2].schema_json",
        "node_types[1].outputs[0].schema_json",
        "node_types[1].outputs[1].name",
        "node_types[1].type",
        "node_types[1].version",
        "node_types[2].type",
    ]
    assert faults["node_types[1].config_schema_json"] == "is not a valid JSON Schema: a schema must be a JSON object"
    assert faults["node_types[1].description"] == "must have at most 4096 bytes, has 5000"
    assert faults["node_types[2].type"] == '"average" is already at node_types[0].type; list each name only once'


def test_schemas_and_declarations_are_limited_in_bytes() -> None:
    large = '{"description": "' + "ü" * 33_000 + '"}'
    assert found_in(replace(GOOD, config_schema=large)) == {
        "node_types[0].config_schema_json": "must have at most 65536 bytes, has 66019"
    }
    handles = tuple(InputHandle(f"h{number}", '{"description": "' + "x" * 60_000 + '"}') for number in range(18))
    assert list(found_in(replace(GOOD, inputs=handles))) == ["node_types[0]"]


def test_handles_and_declarations_are_limited_in_number() -> None:
    handles = tuple(OutputHandle(f"h{number}") for number in range(257))
    assert found_in(replace(GOOD, outputs=handles)) == {"node_types[0].outputs": "must have at most 256, has 257"}
    many = [NodeType(f"t{number}") for number in range(501)]
    assert found_in(*many) == {"node_types": "must have at most 500, has 501"}


def test_declaration_may_be_exactly_at_its_limits() -> None:
    schema = '{"description": "' + "x" * (64 * 1024 - 19) + '"}'
    outputs = tuple(OutputHandle(f"h{number}") for number in range(256))
    full = replace(GOOD, description="x" * 4096, version="1" * 128, config_schema=schema, outputs=outputs)
    others = [NodeType(f"t{number}") for number in range(499)]
    assert found_in(full, *others, limits=replace(LIMITS, declaration_bytes=full.size)) == {}
    assert list(found_in(full, limits=replace(LIMITS, declaration_bytes=full.size - 1))) == ["node_types[0]"]
