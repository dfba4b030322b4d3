"""Error tables: the nearest class decides, tables are merged, and every reason is documented."""

import grpc
import pytest
from google.rpc import error_details_pb2 as details_pb2

from tradewind.api.errors.v1 import error_reason_pb2
from tradewind.server import errors, faults
from tradewind.server.errors import ErrorRule, ErrorTable
from tradewind.server.interception import MethodUnknown


class LeaseLost(faults.FailedPrecondition):
    """A fault with a rule of its own."""


def reason_and_code(table: ErrorTable, error: Exception) -> tuple[str, int]:
    status = table.status_of(error)
    assert status is not None
    info = details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info.reason, status.code


def test_rule_of_the_nearest_class_applies() -> None:
    error = LeaseLost("LEASE_LOST", "the token is stale", "node_tasks/a")
    failed, aborted = grpc.StatusCode.FAILED_PRECONDITION.value[0], grpc.StatusCode.ABORTED.value[0]
    assert reason_and_code(ErrorTable(), error) == ("LEASE_LOST", failed)
    table = ErrorTable({LeaseLost: ErrorRule(grpc.StatusCode.ABORTED)})
    assert reason_and_code(table, error) == ("LEASE_LOST", aborted)


def test_exception_without_a_rule_has_no_status() -> None:
    assert ErrorTable().status_of(ValueError("x")) is None


def test_merged_table_has_rules_of_both() -> None:
    first = ErrorTable({KeyError: ErrorRule(grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")})
    second = ErrorTable({IndexError: ErrorRule(grpc.StatusCode.ABORTED, "VERSION_CONFLICT")})
    merged = first.merged(second)
    assert reason_and_code(merged, KeyError("a"))[0] == "FLOW_NOT_FOUND"
    assert reason_and_code(merged, IndexError("a"))[0] == "VERSION_CONFLICT"
    assert first.status_of(IndexError("a")) is None


def test_message_of_a_rule_replaces_that_of_the_exception() -> None:
    status = ErrorTable({OSError: ErrorRule(grpc.StatusCode.INTERNAL, "INTERNAL", message="told")}).status_of(
        OSError("x")
    )
    assert status is not None
    assert status.message == "told"


def test_exception_without_text_is_described_by_its_reason() -> None:
    status = ErrorTable({OSError: ErrorRule(grpc.StatusCode.ABORTED, "VERSION_CONFLICT")}).status_of(OSError())
    assert status is not None
    assert status.message == "version conflict"


def test_every_shared_reason_is_in_the_documented_list() -> None:
    shared = {rule.reason for rule in errors._SHARED_RULES.values() if rule.reason is not None}
    own = {
        faults.InvalidInput([faults.Violation("a", "b")]).reason,
        *(
            faults.NotFound(what, "x").reason
            for what in ("flow", "cycle", "node task", "worker", "node type", "trigger")
        ),
        "DRAINING",
        "INTERNAL",
    }
    assert reason_and_code(ErrorTable(), MethodUnknown("x"))[0] == "METHOD_UNKNOWN"
    for reason in shared | own:
        assert f"ERROR_REASON_{reason}" in error_reason_pb2.ErrorReason.keys()  # noqa: SIM118


def test_invalid_input_needs_a_violation() -> None:
    with pytest.raises(ValueError, match="at least one violation"):
        faults.InvalidInput([])
