"""Makes messages of the contract from what callers pass, and explains values of a wrong type in a sentence."""

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from google.protobuf.descriptor import FieldDescriptor

Made = TypeVar("Made")
Given = ParamSpec("Given")

_SHOWN = 60
_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
}


def made(kind: Callable[Given, Made], *args: Given.args, **fields: Given.kwargs) -> Made:
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
                raise TypeError(_sentence(kind, name, value)) from None
            except ValueError as error:
                told = f"{name}: {error}" if isinstance(value, str | int) else _sentence(kind, name, value)
                raise ValueError(told) from None
        raise


def told_as(value: object) -> str:
    """Return a value and its type, to complete a sentence: `5 is an int`."""
    shown, name = repr(value), type(value).__name__
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    # By sound: names of types that begin with a U, such as UUID and Union, mostly sound as "you".
    return f"{shown} is {'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _sentence(kind: Any, name: str, value: object) -> str:
    field = kind.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        what = told_as(value) if not isinstance(value, Mapping) else f"{value!r} does not"
        return f'{name} must map names to text, as in {{"team": "risk"}}; {what}'
    word = _KINDS.get(field.cpp_type, "a whole number")
    if field.message_type is not None:
        word = f"a {field.message_type.name}"
    hint = f"; give its {name}" if hasattr(value, name) else ""
    return f"{name} must be {f'a list, each item {word}' if field.is_repeated else word}; {told_as(value)}{hint}"
