"""Makes messages of the contract from what callers pass, and explains values of a wrong type in a sentence."""

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from tradewind.flow.values import type_with_article

Built = TypeVar("Built")
Given = ParamSpec("Given")

_MAX_SHOWN = 60
_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
}


def build(kind: Callable[Given, Built], *args: Given.args, **fields: Given.kwargs) -> Built:
    """Return a message of `kind` with these fields.

    Raises TypeError for a value of the wrong type, ValueError for one that is too large or not valid Unicode; unlike
    Protobuf's own errors, both name the field.
    """
    try:
        return kind(*args, **fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            try:
                kind(**{name: value})  # type: ignore[call-arg, arg-type]
            except TypeError:
                raise TypeError(_type_fault(kind, name, value)) from None
            except ValueError as error:
                text = f"{name}: {error}" if isinstance(value, str | int) else _type_fault(kind, name, value)
                raise ValueError(text) from None
        raise


def describe_value(value: object) -> str:
    """Return a value and its type, to complete a sentence: `5 is an int`."""
    shown = repr(value)
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
    return f"{shown} is {type_with_article(value)}"


def _type_fault(kind: Any, name: str, value: object) -> str:
    field = kind.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        problem = describe_value(value) if not isinstance(value, Mapping) else f"{value!r} does not"
        return f'{name} must map names to text, as in {{"team": "risk"}}; {problem}'
    kind_text = _KINDS.get(field.cpp_type, "a whole number")
    if field.message_type is not None:
        kind_text = f"a {field.message_type.name}"
    hint = f"; give its {name}" if hasattr(value, name) else ""
    expected = f"a list, each item {kind_text}" if field.is_repeated else kind_text
    return f"{name} must be {expected}; {describe_value(value)}{hint}"
