"""The JSON Schemas of a node type, made from its function's types and defaults."""

import json
from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from tradewind.api.registry.v1 import node_type_pb2
from tradewind.flow.json_text import to_builtin
from tradewind.worker.errors import NodeDefinitionError
from tradewind.worker.outputs import Emit
from tradewind.worker.parameters import Parameter, Signature
from tradewind.worker.waiting import Wait

JsonSchema = dict[str, Any]


def declare(node_type: str, description: str, signature: Signature, outputs: Sequence[str]) -> node_type_pb2.NodeType:
    """Return what a worker declares of a node type.

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


def check_readable(parameter: Parameter, where: str) -> None:
    """Raise NodeDefinitionError, beginning with `where`, when a parameter's type cannot be read from JSON."""
    try:
        _schema(parameter.whole_annotation)
        msgspec.json.Decoder(parameter.whole_annotation)
    except TypeError as error:
        raise NodeDefinitionError(
            f"{where}: parameter {parameter.name} of type {parameter.annotation} cannot be read from JSON "
            f"({str(error).splitlines()[0].rstrip(':')}); use Any, numbers, str, list, dict, a dataclass, a TypedDict "
            "or a msgspec.Struct"
        ) from error


def config_schema(signature: Signature) -> JsonSchema:
    """Return the schema of the config object: every key optional, others only when the function takes the whole.

    Objects with known fields within it are closed as well, so that a misspelt field is a fault and not a default.
    """
    parameters = signature.parameters
    schemas, definitions = msgspec.json.schema_components(
        [parameter.whole_annotation for parameter in parameters], ref_template="#/$defs/{name}"
    )
    properties = {
        parameter.name: schema if parameter.required else {**schema, **_default(parameter.default)}
        for parameter, schema in zip(parameters, schemas, strict=True)
    }
    whole: JsonSchema = {"type": "object", "properties": properties}
    if signature.config_name is None:
        whole["additionalProperties"] = False
    if definitions:
        whole["$defs"] = {name: _closed(definition) for name, definition in definitions.items()}
    return whole


def _closed(definition: JsonSchema) -> JsonSchema:
    return {**definition, "additionalProperties": False} if "properties" in definition else definition


def _schema(annotation: Any) -> JsonSchema:
    return msgspec.json.schema(annotation)


def _output_schema(annotation: Any) -> JsonSchema:
    if annotation is Emit:
        return {}
    kinds = get_args(annotation)
    if Wait in kinds and get_origin(annotation) in (Union, UnionType):
        # What it waits for is never emitted.
        annotation = Union[tuple(kind for kind in kinds if kind is not Wait)]  # noqa: UP007
    try:
        return _schema(annotation)
    except TypeError:
        # What a node returns is judged by its value: many a type without a schema can be written as JSON.
        return {}


def _default(value: Any) -> JsonSchema:
    try:
        return {"default": msgspec.to_builtins(value, enc_hook=to_builtin)}
    except TypeError:
        return {}


def _text(schema: JsonSchema) -> str:
    return json.dumps(schema, separators=(",", ":")) if schema else ""
