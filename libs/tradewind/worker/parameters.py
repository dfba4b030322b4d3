"""The parameters of a node's function, read from its signature."""

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union

from tradewind.server.identifiers import is_identifier
from tradewind.worker.context import Context
from tradewind.worker.errors import NodeDefinitionError
from tradewind.worker.models import is_field, is_model
from tradewind.worker.type_parts import meant_by


class _Gathering:
    """Marks the annotation of a gathering handle."""

    def __repr__(self) -> str:
        return "gathering"


_Item = TypeVar("_Item")

Gather: TypeAlias = Annotated[list[_Item], _Gathering()]
"""Annotates a parameter whose handle takes any number of edges: `Gather[float]` is a list of their values, in the order
of the flow's edges. A dead edge adds no value; if there is no value at all and no default, the list is empty."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that can be filled from an input handle or the config."""

    name: str
    annotation: Any
    """The type of one value; `Any` if there is no annotation."""
    gather: bool
    default: Any
    """`inspect.Parameter.empty` if there is no default."""
    whole_annotation: Any
    """The type of what the function gets: a list of values for a gathering handle."""

    @property
    def required(self) -> bool:
        """Whether the function has no default for it."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a node's function."""

    parameters: tuple[Parameter, ...]
    """The parameters that inputs and config fill."""
    context_name: str | None
    """The parameter that takes the Context."""
    config_name: str | None
    """The parameter that takes the whole config."""
    config_type: Any
    """The annotation of that parameter."""
    returns: Any
    """The annotation of the return value; `Any` if there is none."""


def read_signature(function: Callable[..., Any], label: str) -> Signature:
    """Read what `function` takes and returns. Raises NodeDefinitionError, whose message begins with `label`.

    A parameter annotated `Context` gets the context. One named `config` that is annotated as a mapping or a pydantic
    model, or not at all, gets the whole config. Every other parameter is both an input handle and a key of the config.
    """
    hints = _hints(function, label)
    parameters: list[Parameter] = []
    context_name = config_name = config_type = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD and parameter.kind is not parameter.KEYWORD_ONLY:
            raise NodeDefinitionError(
                f"{label}: parameter {parameter} cannot be filled by name; give the node one parameter for each handle"
            )
        if name in ("self", "cls") and not parameters:
            raise NodeDefinitionError(
                f"{label}: a node is a function, or a method of an object that exists: "
                f"node(...)(Thing().{function.__name__})"
            )
        if name == "ctx" and name not in hints:
            raise NodeDefinitionError(f"{label}: parameter ctx would be an input; for the context, write ctx: Context")
        annotation = hints.get(name, Any)
        whole = _not_none(annotation)
        if is_field(parameter.default):
            raise NodeDefinitionError(
                f"{label}: parameter {name} has a Field as its default, which only a model takes; annotate it, "
                f"{name}: Annotated[int, Field(ge=1)] = 5"
            )
        if _is_context(annotation):
            if context_name is not None:
                raise NodeDefinitionError(
                    f"{label}: parameters {context_name} and {name} are both the Context: keep one of them"
                )
            context_name = name
        elif name == "config" and (_is_mapping(whole) or is_model(whole)):
            config_name, config_type = name, whole
        else:
            if not is_identifier(name):
                raise NodeDefinitionError(
                    f"{label}: parameter {name} cannot be a handle; begin it with a letter, use letters, digits and _"
                )
            item, gather = _split_gather(annotation)
            parameters.append(Parameter(name, item, gather, parameter.default, annotation))
    return Signature(tuple(parameters), context_name, config_name, config_type, hints.get("return", Any))


def _hints(function: Callable[..., Any], label: str) -> dict[str, Any]:
    bare = inspect.unwrap(function)
    while isinstance(bare, functools.partial):
        bare = inspect.unwrap(bare.func)
    if not inspect.isroutine(bare):
        bare = type(bare).__call__
    try:
        hints = typing.get_type_hints(bare, include_extras=True)
        return {name: meant_by(annotation) for name, annotation in hints.items()}
    except NameError as error:
        raise NodeDefinitionError(
            f"{label}: {error}; annotations are read when the node is declared, so import their types at run time, "
            "at the top of the module"
        ) from error


def _is_context(annotation: Any) -> bool:
    return annotation is Context or Context in typing.get_args(annotation)


def _is_mapping(annotation: Any) -> bool:
    if annotation is Any:
        return True
    origin = typing.get_origin(annotation) or annotation
    return isinstance(origin, type) and (origin is dict or origin is Mapping)


def _not_none(annotation: Any) -> Any:
    """Return `X` for `X | None`, and any other type unchanged."""
    if typing.get_origin(annotation) not in (Union, UnionType):
        return annotation
    parts = [part for part in typing.get_args(annotation) if part is not NoneType]
    return parts[0] if len(parts) == 1 else annotation


def _split_gather(annotation: Any) -> tuple[Any, bool]:
    gathered = _not_none(annotation)
    if typing.get_origin(gathered) is Annotated:
        listed, *extras = typing.get_args(gathered)
        if any(isinstance(extra, _Gathering) for extra in extras):
            items = typing.get_args(listed)
            item = items[0] if items and not isinstance(items[0], TypeVar) else Any
            return item, True
    return annotation, False
