"""Every reason that the code gives, or the contract names, is in the list of reasons."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.project import ROOT, project_files
from tradewind.api.errors.v1.error_reason_pb2 import ErrorReason
from tradewind.server import faults

PREFIX = "ERROR_REASON_"
KNOWN = {name.removeprefix(PREFIX) for name in ErrorReason.keys()}  # noqa: SIM118  an enum of protobuf is no dict
FAULTS = {name for name, each in vars(faults).items() if isinstance(each, type) and issubclass(each, faults.Fault)}
CODES = {
    "ABORTED",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
}
CAPITALS = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bDRAINING\b")


def reasons_in_code() -> Iterator[tuple[str, str]]:
    """Yield each reason that the code gives as a literal, with its location."""
    for name in project_files():
        if name.suffix != ".py" or (name.parts[0] != "services" and name.parts[:3] != ("libs", "tradewind", "server")):
            continue
        for call in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            callee = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            first = call.args[0]
            if callee in FAULTS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield reason_of(callee, first.value, call), f"{name}:{call.lineno}"


def reason_of(fault: str, first: str, call: ast.Call) -> str:
    """Return the reason in a call that makes a fault; NotFound may derive it from what was not found."""
    if fault != "NotFound":
        return first
    own = [*call.args[2:3], *(each.value for each in call.keywords if each.arg == "reason")]
    return str(ast.literal_eval(own[0])) if own else faults.NotFound(first, "").reason


def reasons_in_contract() -> Iterator[tuple[str, str]]:
    """Yield each reason in the contract's comments that begin with `Errors:`, with its file."""
    for name in project_files():
        if name.suffix == ".proto":
            text = (ROOT / name).read_text(encoding="utf-8")
            for comment in re.findall(r"Errors:((?:.*\n\s*//)*.*)\n\s*rpc ", text):
                for word in CAPITALS.findall(comment):
                    if word not in CODES:
                        yield word, str(name)


@pytest.mark.parametrize("source", [reasons_in_code, reasons_in_contract])
def test_every_reason_is_in_the_enum(source: object) -> None:
    assert callable(source)
    found = list(source())
    assert len(found) > 50
    assert [(reason, place) for reason, place in found if reason not in KNOWN] == []


def test_every_reason_of_the_enum_is_used() -> None:
    """A reason that no code gives would never be sent."""
    code = "".join(
        (ROOT / name).read_text(encoding="utf-8")
        for name in project_files()
        if name.suffix == ".py" and name.parts[0] in ("libs", "services") and "_pb2" not in name.name
    )
    derived = {reason for reason, _ in reasons_in_code()}
    assert {reason for reason in KNOWN if reason not in derived and f'"{reason}"' not in code} <= {"UNSPECIFIED"}
