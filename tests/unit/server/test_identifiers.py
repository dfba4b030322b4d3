"""Identifiers, partitions and shards."""

import pytest

from tradewind.server.identifiers import check_identifier, is_identifier, new_run_id
from tradewind.server.partitions import PARTITIONS, partition_of, shard_of


@pytest.mark.parametrize("value", ["a", "A.b_c-9", "0", "x" * 128])
def test_valid_identifiers_are_accepted(value: str) -> None:
    assert is_identifier(value)
    assert check_identifier("flow_id", value) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must not be empty"),
        ("x" * 129, "must have at most 128 characters, has 129"),
        ("-a", '"-a" must begin with a letter or digit'),
        ("a:b", '"a:b" must begin with a letter or digit and contain only'),
        ("a\n", "must begin with"),
        ("é", "must begin with"),
        ("{f1}", "must begin with"),
    ],
)
def test_invalid_identifiers_are_rejected_with_a_reason(value: str, message: str) -> None:
    assert not is_identifier(value)
    violation = check_identifier("nodes[3].id", value)
    assert violation is not None
    assert violation.path == "nodes[3].id"
    assert message in violation.message


def test_run_ids_are_unique_identifiers() -> None:
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(is_identifier(each) and len(each) == 20 for each in ids)


@pytest.mark.parametrize(("flow_id", "partition"), [("momentum", 12), ("a", 3), ("flow-1", 13), ("", 0)])
def test_partition_of_a_flow_is_stable_because_stored_keys_contain_it(flow_id: str, partition: int) -> None:
    assert partition_of(flow_id) == partition


def test_partitions_and_shards_are_all_used() -> None:
    assert {partition_of(f"flow-{n}") for n in range(500)} == set(range(PARTITIONS))
    assert {shard_of(f"user-{n}", 4) for n in range(100)} == set(range(4))
    assert shard_of("anybody", 1) == 0
