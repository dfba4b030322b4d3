"""Node types: their inputs, outputs and configuration, as declared by the workers that offer them."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputHandle:
    """An input handle; `schema` is JSON text, empty for anything. `gather` takes several edges as a list."""

    name: str
    schema: str = ""
    required: bool = False
    gather: bool = False


@dataclass(frozen=True, slots=True)
class OutputHandle:
    """An output handle; `schema` is JSON text, empty for anything."""

    name: str
    schema: str = ""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A declaration of a node type; `config_schema` is JSON text, empty for anything."""

    name: str
    description: str = ""
    inputs: tuple[InputHandle, ...] = ()
    outputs: tuple[OutputHandle, ...] = ()
    config_schema: str = ""
    version: str = ""

    def fits(self, other: "NodeType") -> bool:
        """Whether the same nodes can be written for both: handles, in any order, and configuration are the same."""
        ours, theirs = ((each.inputs, each.outputs, each.config_schema) for each in (self, other))
        return ours == theirs or _interface(self) == _interface(other)

    @property
    def size(self) -> int:
        """The approximate size of the declaration in bytes."""
        handles: list[InputHandle | OutputHandle] = [*self.inputs, *self.outputs]
        texts = [self.description, self.config_schema, self.version]
        texts += [text for handle in handles for text in (handle.name, handle.schema)]
        return sum(len(text.encode()) for text in texts)


def _interface(node_type: NodeType) -> object:
    inputs = {each.name: (_parsed(each.schema), each.required, each.gather) for each in node_type.inputs}
    return inputs, {each.name: _parsed(each.schema) for each in node_type.outputs}, _parsed(node_type.config_schema)


def _parsed(schema: str) -> object:
    return json.loads(schema) if schema else None


@dataclass(frozen=True, slots=True)
class NodeTypeRecord:
    """A declared node type and the workers that now offer it.

    A `built_in` node type needs no worker and has no `declared_at` (epoch ms). `worker_ids` lists live workers in
    order, up to `Limits.offering` of them.
    """

    node_type: NodeType
    declared_at: int
    worker_ids: tuple[str, ...]
    built_in: bool = False

    @property
    def size(self) -> int:
        """The approximate size of the record in bytes."""
        return self.node_type.size + sum(map(len, self.worker_ids))
