"""Types with a pydantic model or constraint in them: pydantic reads them, by its own rules.

A constraint is what `Annotated` holds of pydantic's, such as `Field(ge=1)`; `PositiveInt` has one. This SDK does not
need pydantic. Code that uses it has imported it, so it is only looked up among imported modules.
"""

import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tradewind.worker.type_parts import parts_of, type_name

_MAX_FAULTS = 5


class ModelMisfit(msgspec.ValidationError):
    """A value does not have the type; `faults` are places in it, such as `[0].price`, and what is wrong there."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = faults
        super().__init__(self.describe("the value"))

    def describe(self, path: str) -> str:
        """Return what is wrong, each fault with its place below `path`."""
        text = "; ".join(f"{path}{place}: {problem}" for place, problem in self.faults[:_MAX_FAULTS])
        more = len(self.faults) - _MAX_FAULTS
        return f"{text}; and {more} more" if more > 0 else text


class ModelReader:
    """Reads values of one type. Raises TypeError for a type that pydantic cannot read from JSON."""

    def __init__(self, annotation: Any) -> None:
        pydantic = sys.modules["pydantic"]
        self._fault: type[Any] = pydantic.ValidationError
        try:
            self.adapter = pydantic.TypeAdapter(annotation)
            self.adapter.json_schema()
        except (pydantic.PydanticUserError, NameError) as error:
            raise TypeError(_unreadable_reason(annotation, error)) from error
        # Nodes emit models by the names of their fields; before 2.11, pydantic accepts only aliases.
        by_name = "by_name" in inspect.signature(self.adapter.validate_json).parameters
        self._names = {"by_alias": True, "by_name": True} if by_name else {}

    def decode(self, text: str | bytes) -> Any:
        """Return the value of JSON text. Raises ModelMisfit."""
        try:
            return self.adapter.validate_json(text, **self._names)
        except self._fault as error:
            raise _misfit(error) from None

    def convert(self, value: Any) -> Any:
        """Return a value of the type for one that was read from JSON. Raises ModelMisfit."""
        return self.decode(msgspec.json.encode(value))

    def written_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a value is written as: by the names of fields. Raises TypeError for none."""
        try:
            schema: dict[str, Any] = self.adapter.json_schema(mode="serialization", by_alias=False)
        except sys.modules["pydantic"].PydanticUserError as error:
            raise TypeError(str(error)) from error
        return schema

    def check(self, value: Any) -> None:
        """Raise ModelMisfit when a Python value does not have the type; models in it are accepted as they are."""
        try:
            self.adapter.validate_python(value)
        except self._fault as error:
            raise _misfit(error) from None


def is_model(part: Any) -> bool:
    """Return whether this is a model of pydantic 2."""
    module, pydantic = sys.modules.get("pydantic.main"), sys.modules.get("pydantic")
    return (
        module is not None
        and hasattr(pydantic, "TypeAdapter")
        and isinstance(part, type)
        and issubclass(part, module.BaseModel)
    )


def has_model(annotation: Any) -> bool:
    """Return whether a model is anywhere in the type."""
    return any(map(is_model, parts_of(annotation)))


def is_field(value: Any) -> bool:
    """Return whether this is what pydantic's `Field` returns."""
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(value, fields.FieldInfo)


def reader_of(annotation: Any) -> ModelReader | None:
    """Return a reader for a type with a model or constraint in it, None for any other type. Raises TypeError."""
    if hasattr(sys.modules.get("pydantic"), "TypeAdapter") and any(map(_is_for_pydantic, parts_of(annotation))):
        return ModelReader(annotation)
    return None


def _is_for_pydantic(part: Any) -> bool:
    return is_model(part) or any(map(_is_constraint, getattr(part, "__metadata__", ())))


def _is_constraint(extra: Any) -> bool:
    """Return whether pydantic knows what this means in an `Annotated`, by where its classes are from."""
    packages = {each.__module__.partition(".")[0] for each in type(extra).__mro__}
    return not packages.isdisjoint(("pydantic", "annotated_types"))


def model_schemas(readers: Iterable[ModelReader], prefix: str = "") -> tuple[list[Any], dict[str, Any]]:
    """Return the JSON Schemas of the values that are read, and the definitions that they refer to.

    The names of definitions begin with `prefix`.
    """
    inputs = [(str(place), "validation", reader.adapter) for place, reader in enumerate(readers)]
    if not inputs:
        return [], {}
    template = f"#/$defs/{prefix}{{model}}"
    schemas, whole = sys.modules["pydantic"].TypeAdapter.json_schemas(inputs, ref_template=template)
    definitions = {prefix + name: definition for name, definition in whole.get("$defs", {}).items()}
    return [schemas[name, mode] for name, mode, _ in inputs], definitions


def _misfit(error: Any) -> ModelMisfit:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return ModelMisfit([("".join(map(_step, fault["loc"])), fault["msg"]) for fault in faults])


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def _unreadable_reason(annotation: Any, error: Exception) -> str:
    for part in parts_of(annotation):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return (
                f"{type_name(part)} is a msgspec.Struct, which cannot hold pydantic models or constraints: use a "
                "dataclass or a model"
            )
    return str(error).partition("\n")[0]
