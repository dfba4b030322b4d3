"""Random and nearly valid messages, made from the descriptors of the contract alone."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from tradewind.server.paging import page_token

Known: TypeAlias = Mapping[str, Sequence[Any]]
"""Values that fields of these names have in a running stack, by name."""

DEPTH = 5
MANY = 300
_PREFIXES = ("held_", "give_back_", "from_", "after_")
_ALIASES = {
    "task_id": "node_task_id",
    "id": "node_id",
    "source": "node_id",
    "target": "node_id",
    "type": "node_type",
    "item": "cycle",
    "wait": "",
}
_POSITIONS: tuple[Any, ...] = (
    2**63 - 1,
    -(2**63),
    "x",
    "\0",
    None,
    [2**62, 2**62],
    [-1, -1],
    [0, "x"],
    [0, False, None, "x"],
    {"a": 1},
    [[]],
)
TEXTS = (
    *(
        "",
        " ",
        "a",
        "0",
        "-1",
        "1",
        "5m",
        "-5s",
        "1e400s",
        "9" * 400 + "s",
        "nan",
        "inf",
        "1.5",
        "1/s",
        "9" * 30 + "/m",
    ),
    *(
        "x" * 128,
        "x" * 129,
        "x" * 70_000,
        "\0",
        "a\0b",
        "\u202e",
        "\U0001f4a5" * 40,
        "e\u0301",
        "\ud7ff",
        "\uffff",
        "٣s",
        "²",
    ),
    *(
        "a/b",
        "a~b",
        "0~a~1~b",
        "~~~",
        "{}",
        "a{b",
        "}",
        "*",
        "../../etc/passwd",
        "%s%n",
        "\r\n",
        "1-1",
        "0-0",
        "18446744073709551616-0",
    ),
    *(
        "null",
        "[]",
        "{",
        '"',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 123456789012345678901234567890}',
        "[" * 3000,
        "[" * 900 + "]" * 900,
        '{"a": 1e999999999}',
        '{"a":' * 3000,
    ),
    *(
        '{"\\ud800": 1}',
        '"\\ud800"',
        '{"$secret": 1}',
        '{"interval": "5m", "nodes": {}}',
        '{"nodes": [{"id": 1}], "edges": 7}',
    ),
    *(
        "* * * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "*/0 * * * *",
        "Europe/Berlin",
        "Nowhere/At_All",
        "2026-11-21T09:30:00Z",
        "9999-12-31T23:59:59Z",
    ),
    *("0001-01-01T00:00:00+23:59", "2026-02-30T00:00:00Z", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    *("type", "total", "list", "user", "http://127.0.0.1:1", "127.0.0.1:1", "[::1", "dns:///", "sha256:" + "0" * 64),
)
_I32 = (0, 1, -1, 2, 3, 7, 100, 1000, 10_001, 2**31 - 1, -(2**31))
_I64 = (*_I32, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 1_800_000_000, 253_402_300_799, 253_402_300_800, -62_135_596_801)
_U64 = (0, 1, 2**32 - 1)
_DOUBLES = (0.0, -0.0, 1.0, 0.5, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 2.0**53)
_NUMBERS: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: _I32,
    FieldDescriptor.CPPTYPE_INT64: _I64,
    FieldDescriptor.CPPTYPE_UINT32: _U64,
    FieldDescriptor.CPPTYPE_UINT64: _U64,
    FieldDescriptor.CPPTYPE_DOUBLE: _DOUBLES,
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, float("nan"), float("inf"), -1.0),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
}
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]


def harvest(message: Message, into: defaultdict[str, list[Any]]) -> None:
    """Add the values in all fields of an answer, including nested ones, to the known values."""
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            if isinstance(each, Message):
                if not each.DESCRIPTOR.full_name.startswith("google."):
                    harvest(each, into)
            elif each not in into[field.name]:
                into[field.name].append(each)


def valid(kind: Descriptor, known: Known, depth: int = DEPTH) -> Message:
    """Return a message with a known value in every field that has one, and nothing else."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if field.message_type is not None and depth and not _is_map(field):
            part = valid(field.message_type, known, depth - 1)
            if part.ByteSize():
                _put(message, field, [part] if field.is_repeated else part)
        elif field.message_type is None and (values := _known(field, known)):
            _put(message, field, [values[0]] if field.is_repeated else values[0])
    return message


@st.composite
def random_messages(draw: Draw, kind: Descriptor, known: Known, depth: int = DEPTH) -> Message:
    """Draw messages whose fields hold anything that their types allow."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if draw(st.integers(0, DEPTH)) <= depth - 2:
            _fill(draw, message, field, known, depth)
    return message


@st.composite
def broken(draw: Draw, sample: Message, known: Known) -> Message:
    """Draw copies of `sample` in which one field, at any depth, holds something else or nothing."""
    message = type(sample)()
    message.CopyFrom(sample)
    part, depth = message, DEPTH
    while True:
        fields = part.DESCRIPTOR.fields
        if not fields:
            return message
        field = draw(st.sampled_from(list(fields)))
        inner = _part(draw, part, field)
        if inner is not None and draw(st.integers(0, 3)):
            part, depth = inner, depth - 1
            continue
        part.ClearField(field.name)
        if draw(st.integers(0, 4)):
            _fill(draw, part, field, known, depth)
        return message


def requests(kind: Descriptor, samples: Sequence[Message], known: Known) -> st.SearchStrategy[Message]:
    """Return messages of a kind: random ones and, more often, `samples` with one field broken."""
    near = st.sampled_from(samples).flatmap(lambda sample: broken(sample, known))
    return st.one_of(near, near, random_messages(kind, known))


def _part(draw: Draw, message: Message, field: FieldDescriptor) -> Message | None:
    if field.message_type is None or _is_map(field):
        return None
    if field.is_repeated:
        parts = getattr(message, field.name)
        return parts[draw(st.integers(0, len(parts) - 1))] if len(parts) else None
    return getattr(message, field.name) if message.HasField(field.name) else None


def _fill(draw: Draw, message: Message, field: FieldDescriptor, known: Known, depth: int) -> None:
    if field.message_type is not None and _is_map(field):
        entry = field.message_type.fields_by_name
        if entry["value"].message_type is None:
            for _ in range(draw(st.integers(1, 3))):
                key, value = _scalar(draw, entry["key"], known), _scalar(draw, entry["value"], known)
                getattr(message, field.name)[key] = value
        elif depth:
            part = getattr(message, field.name)[_scalar(draw, entry["key"], known)]
            part.CopyFrom(draw(random_messages(entry["value"].message_type, known, depth - 1)))
    elif field.message_type is not None:
        if depth:
            part = draw(random_messages(field.message_type, known, depth - 1))
            _put(message, field, [part] * _count(draw) if field.is_repeated else part)
    elif field.is_repeated:
        some = [_scalar(draw, field, known) for _ in range(draw(st.integers(1, 3)))]
        _put(message, field, some * _count(draw))
    else:
        _put(message, field, _scalar(draw, field, known))


def _count(draw: Draw) -> int:
    return int(draw(st.sampled_from((1, 1, 1, 2, 3, MANY))))


def _scalar(draw: Draw, field: FieldDescriptor, known: Known) -> Any:
    values = _known(field, known)
    if values and draw(st.booleans()):
        return draw(st.sampled_from(values))
    if field.enum_type is not None:
        return draw(st.sampled_from((*field.enum_type.values_by_number, 77, -1)))
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        return draw(st.sampled_from(_NUMBERS[field.cpp_type]))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw(st.binary(max_size=20))
    if field.name == "page_token" and draw(st.booleans()):
        return page_token(draw(st.sampled_from(_POSITIONS)))
    return draw(st.one_of(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.text(max_size=20)))


def _known(field: FieldDescriptor, known: Known) -> Sequence[Any]:
    name = field.name
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for each in (field.name, name, name.removesuffix("s"), _ALIASES.get(name.removesuffix("s"), "")):
        fitting = [value for value in known.get(each, ()) if _fits(field, value)]
        if fitting:
            return fitting
    return ()


def _fits(field: FieldDescriptor, value: Any) -> bool:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type != FieldDescriptor.TYPE_BYTES:
        return isinstance(value, str)
    return (
        field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        and type(value) is int
        and abs(value) < 2**31
    )


def _put(message: Message, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
