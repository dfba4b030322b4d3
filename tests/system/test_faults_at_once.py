"""A request in which many fields are wrong is refused with the faults of all of them, whatever the RPC."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from tests.system.fuzzed_stack import METHODS, Answer, FuzzedStack, fuzzed_stack
from tests.system.fuzzing import valid

_WRONG: dict[int, Sequence[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: (-1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-1, 2**63 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (77,),
}
_LOOKED_UP = {"SchedulerService.StopComponent": {"component_id"}, "SchedulerService.DescribeCycle": {"page_token"}}
"""Fields, by RPC, that are refused only by what is on record about something else that the request names."""
_SPANS = ("google.protobuf.Timestamp", "google.protobuf.Duration")
_UNARY = [
    name
    for name, method in METHODS.items()
    if not (method.client_streaming or method.server_streaming or name.startswith("WorkerService."))
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedStack]:
    with fuzzed_stack(tmp_path_factory.mktemp("faults")) as stack:
        stack.prepare()
        yield stack


@pytest.mark.parametrize("name", _UNARY)
def test_faults_of_all_fields_are_named_at_once(stack: FuzzedStack, name: str) -> None:
    method = METHODS[name]
    wrong = {field.name: value for field in method.input_type.fields if (value := _wrong(stack, method, field))}
    request = valid(method.input_type, stack.known)
    for field in wrong:
        _set(request, method.input_type.fields_by_name[field], wrong[field][0])
    named = set(map(_field, _answer(stack, method, request).paths)) if wrong else set()
    assert named >= set(wrong) - _LOOKED_UP.get(name, set())


def _wrong(stack: FuzzedStack, method: MethodDescriptor, field: FieldDescriptor) -> tuple[Any] | None:
    """Return a value for which a field is refused although all else in the request is right, None if there is none."""
    for value in _wrong_values(field):
        request = valid(method.input_type, stack.known)
        _set(request, field, value)
        if field.name in map(_field, _answer(stack, method, request).paths):
            return (value,)
    return None


def _wrong_values(field: FieldDescriptor) -> Sequence[Any]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return f"a {field.name}", "", "x" * 300
    if field.message_type is None:
        return _WRONG.get(field.cpp_type, ())
    return (-1, 2**62) if field.message_type.full_name in _SPANS else ()


def _set(request: Message, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is not None:
        getattr(request, field.name).seconds = value
    elif field.is_repeated:
        getattr(request, field.name).append(value)
    else:
        setattr(request, field.name, value)


def _answer(stack: FuzzedStack, method: MethodDescriptor, request: Message) -> Answer:
    return stack.call(method, [request], "service")


def _field(path: str) -> str:
    return path.partition("[")[0].partition(".")[0]
