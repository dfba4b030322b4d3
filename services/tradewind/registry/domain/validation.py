"""Finds all faults of a worker's registration at once, each with its path in the request."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from tradewind.registry.domain.built_in import BUILT_IN
from tradewind.registry.domain.limits import Limits
from tradewind.registry.domain.node_type import InputHandle, NodeType, OutputHandle
from tradewind.registry.domain.worker import Worker
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier

SchemaFault = Callable[[str], str | None]
"""Returns what is wrong with a JSON Schema text, None if nothing is."""

_MAX_VERSION_BYTES = 128
_SCHEMES = ("http", "https", "grpc", "grpcs", "dns")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", re.ASCII)


def worker_violations(worker: Worker, limits: Limits) -> list[Violation]:
    """Return every fault of a worker's description, in fields of `worker`."""
    found = [
        check_identifier("worker.worker_id", worker.worker_id),
        check_identifier("worker.incarnation", worker.incarnation),
        _address("worker.api_url", worker.api_url),
        _at_least("worker.capacity", worker.capacity, 1),
        _at_least("worker.running", worker.running, 0),
        _at_least("worker.pid", worker.pid, 0),
        _length("worker.host", worker.host, limits),
        _length("worker.sdk", worker.sdk, limits),
        *_names("worker.node_types[{}]", worker.node_types),
        *_labels(worker.labels, limits),
    ]
    if len(worker.node_types) > limits.node_types_of_worker:
        found.append(_too_many("worker.node_types", len(worker.node_types), limits.node_types_of_worker))
    return [violation for violation in found if violation]


def node_type_violations(
    node_types: Iterable[NodeType], limits: Limits, schema_fault: SchemaFault
) -> Iterator[Violation]:
    """Yield every fault of the node types that a worker declares."""
    declared = list(node_types)
    if len(declared) > limits.node_types_of_worker:
        yield _too_many("node_types", len(declared), limits.node_types_of_worker)
    yield from _names("node_types[{}].type", (node_type.name for node_type in declared))
    for place, node_type in enumerate(declared):
        path = f"node_types[{place}]"
        if node_type.name in BUILT_IN:
            message = f'"{node_type.name}" is a built-in node type; choose another name'
            yield Violation(f"{path}.type", message)
        yield from _handles(f"{path}.inputs", node_type.inputs, limits, schema_fault)
        yield from _handles(f"{path}.outputs", node_type.outputs, limits, schema_fault)
        yield from _schema(f"{path}.config_schema_json", node_type.config_schema, limits, schema_fault)
        yield from _bytes(f"{path}.description", len(node_type.description.encode()), limits.description_bytes)
        yield from _bytes(f"{path}.version", len(node_type.version.encode()), _MAX_VERSION_BYTES)
        yield from _bytes(path, node_type.size, limits.declaration_bytes)


def _handles(
    path: str, handles: Sequence[InputHandle | OutputHandle], limits: Limits, schema_fault: SchemaFault
) -> Iterator[Violation]:
    yield from _names(path + "[{}].name", (handle.name for handle in handles))
    for place, handle in enumerate(handles):
        yield from _schema(f"{path}[{place}].schema_json", handle.schema, limits, schema_fault)
    if len(handles) > limits.handles:
        yield _too_many(path, len(handles), limits.handles)


def _schema(path: str, text: str, limits: Limits, schema_fault: SchemaFault) -> Iterator[Violation]:
    if not text:
        return
    size = len(text.encode())
    if size > limits.schema_bytes:
        yield from _bytes(path, size, limits.schema_bytes)
    elif fault := schema_fault(text):
        yield Violation(path, f"is not a valid JSON Schema: {fault}")


def _names(path: str, names: Iterable[str]) -> Iterator[Violation]:
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        here = path.format(place)
        if violation := check_identifier(here, name):
            yield violation
        elif first.setdefault(name, place) != place:
            yield Violation(here, f'"{name}" is already at {path.format(first[name])}; list each name only once')


def _labels(labels: tuple[tuple[str, str], ...], limits: Limits) -> Iterator[Violation]:
    if len(labels) > limits.labels:
        yield _too_many("worker.labels", len(labels), limits.labels)
    for key, value in labels:
        path = f'worker.labels["{key[:128]}"]'
        if not _LABEL.fullmatch(key):
            yield Violation(
                path,
                'a label key must have 1 to 128 letters, digits, ".", "_", "-" and "/", and begin with a letter or '
                "digit",
            )
        if violation := _length(path, value, limits):
            yield violation


def _address(path: str, address: str) -> Violation | None:
    if not address:
        return None
    example = 'use "host:port" or a URL such as "http://host:port", or leave it empty for a worker that opens a stream'
    if len(address) > 512 or any(character.isspace() for character in address):
        return Violation(path, f"is not an address: {example}")
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        # dns:///host:port has its target in the path; what stands before the path is a name server.
        target = urlsplit(f"/{parts.path}") if parts.scheme == "dns" else parts
        path_left = "" if target is not parts else parts.path.strip("/")
        valid = bool(target.hostname and target.port) and not (path_left or parts.query or parts.fragment)
    except ValueError:
        valid = False
    else:
        valid = valid and (not parts.scheme or parts.scheme in _SCHEMES) and not (parts.username or parts.password)
    return None if valid else Violation(path, f'"{address[:128]}" is not an address: {example}')


def _at_least(path: str, number: int, least: int) -> Violation | None:
    return Violation(path, f"must be at least {least}, is {number}") if number < least else None


def _length(path: str, text: str, limits: Limits) -> Violation | None:
    if len(text) <= limits.text_characters:
        return None
    return Violation(path, f"must have at most {limits.text_characters} characters, has {len(text)}")


def _bytes(path: str, size: int, most: int) -> Iterator[Violation]:
    if size > most:
        yield Violation(path, f"must have at most {most} bytes, has {size}")


def _too_many(path: str, number: int, most: int) -> Violation:
    return Violation(path, f"must have at most {most}, has {number}")
