"""The JSON Schemas of a node type, from its function's types and defaults."""

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from tradewind.api.registry.v1 import node_type_pb2
from tradewind.flow.json_text import to_builtin
from tradewind.worker.errors import NodeDefinitionError
from tradewind.worker.models import model_schemas, reader_of
from tradewind.worker.open_enums import with_open_enums
from tradewind.worker.outputs import Emit
from tradewind.worker.parameters import Signature
from tradewind.worker.returns import emitted_type
from tradewind.worker.type_parts import parts_of, type_name

JsonSchema = dict[str, Any]

_READABLE = "Any, numbers, str, list, dict, a dataclass, a TypedDict, a msgspec.Struct or a model of pydantic 2"
_READABLE_ENUM = "an enum whose values are all text or all whole numbers"
_ALTERNATIVES = {object: "Any", Path: "str, and make the Path in the node", complex: "list[float], its two parts"}


def declare(node_type: str, description: str, signature: Signature, outputs: Sequence[str]) -> node_type_pb2.NodeType:
    """Return the declaration of a node type.

    Each parameter is both an input handle, required when it has no default, and an optional key of the config.
    """
    declared = node_type_pb2.NodeType(
        type=node_type, description=description, config_schema_json=_text(config_schema(signature))
    )
    for parameter in signature.parameters:
        declared.inputs.add(
            name=parameter.name,
            schema_json=_text(_schema(parameter.annotation)),
            required=parameter.required,
            gather=parameter.gather,
        )
    for handle in outputs:
        declared.outputs.add(
            name=handle, schema_json=_text(_output_schema(signature.returns) if len(outputs) == 1 else {})
        )
    return declared


def check_readable(signature: Signature, label: str) -> None:
    """Raise NodeDefinitionError, whose message begins with `label`, if a parameter's type cannot be read from JSON."""
    annotated = [(parameter.name, parameter.annotation) for parameter in signature.parameters]
    annotated += [
        (parameter.name, parameter.whole_annotation) for parameter in signature.parameters if parameter.gather
    ]
    if signature.config_name is not None:
        annotated.append((signature.config_name, signature.config_type))
    for name, annotation in annotated:
        prefix = f"{label}: parameter {name} of type {type_name(annotation)} cannot be read from JSON"
        try:
            reader = reader_of(annotation)
        except TypeError as error:
            raise NodeDefinitionError(f"{prefix}: {error}") from error
        try:
            if reader is None:
                msgspec.json.schema(annotation)
                msgspec.json.Decoder(annotation)
        except TypeError as error:
            raise NodeDefinitionError(prefix + _alternative(annotation, error)) from error
        except RecursionError as error:
            raise NodeDefinitionError(f"{prefix} because it is an alias that contains itself; use Any") from error


def _alternative(annotation: Any, error: TypeError) -> str:
    """Return which type within the annotation is to blame, and what to use instead."""
    classes = [part for part in parts_of(annotation) if isinstance(part, type) and not _is_readable(part)]
    if not classes:
        return f" ({str(error).splitlines()[0]}); use {_READABLE}"
    foreign = classes[-1]
    because = "" if foreign is annotation else f" because of {type_name(foreign)}"
    alternative = _READABLE_ENUM if issubclass(foreign, Enum) else _ALTERNATIVES.get(foreign, _READABLE)
    return f"{because}; use {alternative}"


def _is_readable(part: Any) -> bool:
    try:
        msgspec.json.schema(part)
    except TypeError:
        return False
    return True


def config_schema(signature: Signature) -> JsonSchema:
    """Return the schema of the config object: every key is optional, unknown keys only allowed for a whole `config`.

    Nested objects with known fields are closed as well, so that a misspelt field is a fault and not a silent default.
    """
    types = {parameter.name: parameter.whole_annotation for parameter in signature.parameters}
    if signature.config_name is not None:
        types[signature.config_name] = signature.config_type
    readers = {name: reader for name, annotation in types.items() if (reader := reader_of(annotation)) is not None}
    plain = {name: annotation for name, annotation in types.items() if name not in readers}
    plain.pop(signature.config_name or "", None)
    schemas_of_plain, definitions = msgspec.json.schema_components(plain.values(), ref_template="#/$defs/{name}")
    schemas_of_models, model_definitions = model_schemas(readers.values(), "model.")
    schemas = dict(zip((*plain, *readers), (*schemas_of_plain, *schemas_of_models), strict=True))
    properties = {
        parameter.name: schemas[parameter.name] | ({} if parameter.required else _default(parameter.default))
        for parameter in signature.parameters
    }
    whole: JsonSchema = {"type": "object", "properties": properties}
    if signature.config_name is None:
        whole["additionalProperties"] = False
    elif signature.config_name in readers:
        whole["allOf"] = [schemas[signature.config_name]]
    if definitions or model_definitions:
        # A model decides by itself whether fields that it does not have are a fault.
        whole["$defs"] = {name: _closed(definition) for name, definition in definitions.items()} | model_definitions
    return with_open_enums(whole, types.values())


def _closed(definition: JsonSchema) -> JsonSchema:
    return {**definition, "additionalProperties": False} if "properties" in definition else definition


def _schema(annotation: Any) -> JsonSchema:
    reader = reader_of(annotation)
    if reader is None:
        return with_open_enums(msgspec.json.schema(annotation), [annotation])
    (schema,), definitions = model_schemas([reader])
    return with_open_enums({**schema, "$defs": definitions} if definitions else dict(schema), [annotation])


def _output_schema(annotation: Any) -> JsonSchema:
    if annotation is Emit:
        return {}
    emitted = emitted_type(annotation)
    try:
        reader = reader_of(emitted)
        schema = msgspec.json.schema(emitted) if reader is None else reader.written_schema()
        return with_open_enums(schema, [emitted])
    except (TypeError, RecursionError):
        # A returned value is judged by itself: many types without a schema can be written as JSON.
        return {}


def _default(value: Any) -> JsonSchema:
    try:
        return {"default": msgspec.to_builtins(value, enc_hook=to_builtin)}
    except TypeError:
        return {}


def _text(schema: JsonSchema) -> str:
    return json.dumps(schema, separators=(",", ":")) if schema else ""
