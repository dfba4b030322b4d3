"""Fills the parameters of a node from the inputs, run inputs and config of an assignment."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tradewind.worker.absent_defaults import with_defaults
from tradewind.worker.errors import NodeFault, invalid_input
from tradewind.worker.models import ModelMisfit, reader_of
from tradewind.worker.parameters import Parameter, Signature
from tradewind.worker.secrets import holds_secret
from tradewind.worker.texts import suggestion

Arguments = dict[str, Any]

_CACHED_CONFIGS = 128
_CACHED_CONFIG_LENGTH = 64 * 1024
_SHAREABLE = (str, int, float, bool, bytes, type(None))


class _Input(Protocol):
    @property
    def handle(self) -> str: ...
    @property
    def values_json(self) -> Sequence[str]: ...


class _Handle:
    """Turns the values of one handle into an argument."""

    __slots__ = ("convert", "decode", "gather", "name")

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.name
        self.gather = parameter.gather
        self.decode: Callable[[str], Any]
        self.convert: Callable[[Any], Any]
        whole = parameter.whole_annotation
        reader = reader_of(whole)
        if reader is None:
            self.decode = with_defaults(whole, msgspec.json.Decoder(whole).decode)
            self.convert = with_defaults(whole, functools.partial(msgspec.convert, type=whole, strict=False))
        else:
            self.decode, self.convert = reader.decode, reader.convert


@dataclass(slots=True)
class ConfigPlan:
    """A parsed config: the arguments that calls share, and those that each call gets a copy of."""

    shared: Arguments = field(default_factory=dict)
    fresh: list[tuple[str, bytes, Callable[[bytes], Any]]] = field(default_factory=list)
    """The name of each, its JSON, and how that is decoded."""
    unresolved: dict[str, Any] | None = None
    """The config itself if it refers to secrets: each call then resolves and converts it again."""


class Binder:
    """Makes the arguments of one node's calls; everything that does not depend on the call is prepared in advance.

    A parameter is filled from the input handle of its name, else the run input, else the config, else its default.
    Values of inputs must have the declared type; run inputs and configs, which people write, may have `"20"` for 20.
    """

    def __init__(self, node_type: str, signature: Signature) -> None:
        self._node_type = node_type
        self._handles = {parameter.name: _Handle(parameter) for parameter in signature.parameters}
        self._gathering = tuple(
            parameter.name for parameter in signature.parameters if parameter.gather and parameter.required
        )
        self._required = frozenset(
            parameter.name for parameter in signature.parameters if parameter.required and not parameter.gather
        )
        self._config_name = signature.config_name
        self._config_reader = reader_of(signature.config_type)
        self._cached_plan = functools.lru_cache(_CACHED_CONFIGS)(self._make_plan)
        self._empty_plan = self._make_plan("{}") if self._config_reader is None else None
        """None when a model decides whether the config may be empty."""

    def plan(self, config_json: str) -> ConfigPlan:
        """Return a parsed config, from the cache if possible. Raises NodeFault when it does not fit the parameters."""
        if config_json == "{}" or not config_json:
            return self._empty_plan or self._cached_plan("{}")
        if len(config_json) > _CACHED_CONFIG_LENGTH:
            return self._make_plan(config_json)
        return self._cached_plan(config_json)

    def bind(self, plan: ConfigPlan, inputs: Sequence[_Input], run_inputs_json: str) -> Arguments:
        """Return the arguments of a call: `plan`, overridden by the run inputs, and these by the inputs.

        Raises NodeFault when a value does not fit its parameter, when a handle has no parameter, and INPUT_MISSING when
        a parameter has no value.
        """
        arguments = plan.shared.copy()
        for name, raw, decode in plan.fresh:
            arguments[name] = decode(raw)
        if run_inputs_json:
            self._add_run_inputs(arguments, run_inputs_json)
        # A slice, because a loop over a message's own field costs an IndexError at the end.
        for given in inputs[:]:
            name = given.handle
            handle = self._handles.get(name)
            if handle is None:
                raise invalid_input(
                    f"input {name}: node type {self._node_type} has no such handle{suggestion(name, self._handles)}"
                )
            values = given.values_json
            if values or handle.gather:
                arguments[name] = self._decoded(handle, values)
        for name in self._gathering:
            if name not in arguments:
                arguments[name] = self._decoded(self._handles[name], ())
        for name in self._required:
            if name not in arguments:
                raise self._missing(arguments)
        return arguments

    def _decoded(self, handle: _Handle, values: Sequence[str]) -> Any:
        try:
            if len(values) == 1 and not handle.gather:
                return handle.decode(values[0])
            # Several edges may lead into any handle if the flow was registered before a worker declared the type.
            return handle.decode(f"[{','.join(values)}]")
        except msgspec.DecodeError as error:
            raise self._misfit(handle, values, error) from None

    def convert_config(self, config: dict[str, Any]) -> ConfigPlan:
        """Return the plan of a config with resolved secrets, for one call. Raises NodeFault."""
        return ConfigPlan(self._arguments_of(config))

    def _make_plan(self, config_json: str) -> ConfigPlan:
        try:
            config = msgspec.json.decode(config_json)
        except msgspec.DecodeError as error:
            raise invalid_input(f"config is not JSON: {error}") from None
        if config is None:
            config = {}
        if not isinstance(config, dict):
            raise invalid_input(f"config must be a JSON object, is {type(config).__name__}")
        if holds_secret(config):
            return ConfigPlan(unresolved=config)
        plan = ConfigPlan()
        for name, value in self._arguments_of(config).items():
            if isinstance(value, _SHAREABLE):
                plan.shared[name] = value
            else:
                plan.fresh.append(self._fresh_argument(name, config))
        return plan

    def _fresh_argument(self, name: str, config: dict[str, Any]) -> tuple[str, bytes, Callable[[bytes], Any]]:
        if name == self._config_name:
            decode = msgspec.json.decode if self._config_reader is None else self._config_reader.decode
            return name, msgspec.json.encode(config), decode
        convert = self._handles[name].convert
        return name, msgspec.json.encode(config[name]), lambda raw: convert(msgspec.json.decode(raw))

    def _arguments_of(self, config: dict[str, Any]) -> Arguments:
        arguments: Arguments = {}
        for name, value in config.items():
            handle = self._handles.get(name)
            if handle is not None:
                arguments[name] = self._converted(handle, "config", value)
            elif self._config_name is None:
                raise invalid_input(
                    f"config.{name}: node type {self._node_type} has no such parameter{suggestion(name, self._handles)}"
                )
        if self._config_name is not None:
            arguments[self._config_name] = self._whole_config(config)
        return arguments

    def _whole_config(self, config: dict[str, Any]) -> Any:
        if self._config_reader is None:
            return config
        try:
            return self._config_reader.convert(config)
        except ModelMisfit as error:
            raise invalid_input(error.describe("config")) from None

    def _add_run_inputs(self, arguments: Arguments, run_inputs_json: str) -> None:
        try:
            run_inputs = msgspec.json.decode(run_inputs_json, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise invalid_input(f"the run's inputs are not a JSON object: {error}") from None
        # Run inputs are for all entry nodes, so a key that this node does not know may be for another.
        for name, handle in self._handles.items():
            if name in run_inputs:
                arguments[name] = self._converted(handle, "run input", run_inputs[name])

    def _converted(self, handle: _Handle, source: str, value: Any) -> Any:
        try:
            return handle.convert(value)
        except msgspec.ValidationError as error:
            raise invalid_input(plain_message(f"{source}.{handle.name}", error)) from None

    def _missing(self, arguments: Arguments) -> NodeFault:
        missing = ", ".join(sorted(self._required - arguments.keys()))
        return NodeFault(
            "INPUT_MISSING",
            f"no value for {missing}, and node type {self._node_type} has no default: a value comes from an edge whose "
            "source emits, from the node's config (a task's parameters) or, for an entry node, from the run's inputs",
            non_retryable=True,
        )

    def _misfit(self, handle: _Handle, values: Any, error: msgspec.DecodeError) -> NodeFault:
        message = plain_message(f"input {handle.name}", error)
        if len(values) > 1 and not handle.gather:
            message += (
                f"; {len(values)} edges lead into this handle, so their values come as a list: annotate the parameter "
                "Gather[...], or keep only one edge"
            )
        return invalid_input(message)


def plain_message(path: str, error: msgspec.DecodeError) -> str:
    """Turn msgspec's "Expected `float`, got `str` - at `$[1]`" into "<path>[1]: expected float, got str"."""
    if isinstance(error, ModelMisfit):
        return error.describe(path)
    what, _, where = str(error).partition(" - at `$")
    return f"{path}{where.rstrip('`')}: {what[:1].lower()}{what[1:].replace('`', '')}"
